//! `belfry login` and `belfry logout`: a session of a person, from a password or from a login at the OpenID provider of the
//! server, which [`browser`] does.
//!
//! The session is a token. It is stored in a file beside the contexts, `NAME.session`, and the context `NAME` uses the
//! file. The password is read from the terminal without echo, or from standard input; no argument and no environment
//! variable takes it, because other users of the machine could see it.
//!
//! # Invariants
//! - Only the user can read the file of a session. It is replaced as a whole.
//! - No message contains a password or a session.
//! - `logout` deletes only a file that `login` has created.

mod browser;

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use client::{Client, Timeouts};
use model::api::{Code, LogIn, LoggedIn, PasswordText};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use super::Context;
use crate::args::access::{LoginArgs, LoginHow};
use crate::contexts::{self, ContextSettings, Contexts};
use crate::failure::{Exit, Failure};
use crate::output::text::escape;
use crate::output::time::exact;
use crate::settings::{Origin, Settings, Sources};

/// End of the name of a file with a session.
const SESSION_FILE: &str = "session";
/// Maximum length of a password on standard input, in bytes.
const PASSWORD_BYTES_MAX: u64 = 4096;

pub(super) async fn log_in(context: &Context, args: LoginArgs) -> Result<(), Failure> {
    let sources = context.sources()?;
    let path = sources.user_contexts().ok_or_else(no_folder)?;
    let mut all = Contexts::load(&path)?;
    let url = match &args.server {
        Some(url) if context.global.url.is_some() || context.global.context.is_some() => {
            return Err(Failure::usage(format!("two servers: `{url}` and that of a global option"))
                .help("name the server once"));
        }
        Some(url) => url.clone(),
        None => context.connect()?.0.url().to_owned(),
    };
    // A token of another source, such as the environment, is not sent to the server.
    let client = Client::with_patience(&url, None, Timeouts::default())?;
    let selected = contexts::select(&sources, context.global.context.as_deref())?;
    let selected =
        selected.filter(|found| is_same(&found.settings.url, client.url())).map(|found| found.name);
    let ca_file = ca_file(&sources, selected.is_some())?;
    let authority = ca_file.as_deref().map(crate::connect::read_authority).transpose()?;
    let client = Client::trusting(&url, None, Timeouts::default(), authority.as_deref())?;
    let name = match args.name {
        Some(name) => valid_name(name)?,
        None => selected.unwrap_or_else(|| name_for(&all, client.url())),
    };
    let logged_in = session(context, &client, args.account, args.password_stdin, &args.how).await?;
    let secret = logged_in.secret.ok_or_else(|| {
        Failure::message(Exit::Failed, "the server has sent no session").help("upgrade the server")
    })?;
    let file = session_file(&path, &name);
    let former = std::fs::read_to_string(&file).ok();
    write_private(&file, &format!("{secret}\n")).map_err(|error| {
        Failure::message(Exit::Failed, format!("cannot write `{}`: {error}", file.display()))
    })?;
    let namespace = all.contexts.get(&name).and_then(|known| known.namespace.clone());
    let settings =
        ContextSettings { url: client.url().to_owned(), token_file: Some(file), ca_file, namespace };
    all.contexts.insert(name.clone(), settings);
    all.current = Some(name.clone());
    all.store(&path)?;
    if let Some(former) = former {
        end(&url, former.trim(), authority.as_deref()).await;
    }
    let until = logged_in.session.expires_at.map(|at| format!(" until {}", exact(&context.out.look, at)));
    context.out.note(format!(
        "logged in to {} as {}{}; commands use context `{name}`",
        client.url(),
        escape(&logged_in.me.name),
        until.unwrap_or_default()
    ));
    super::contexts::warn_overridden(context, &sources);
    Ok(())
}

/// Returns the absolute path of the file with the certificate authority. That of a context is for its own server only.
fn ca_file(sources: &Sources, is_server_of_context: bool) -> Result<Option<PathBuf>, Failure> {
    let settings = Settings::load(sources)?;
    let of_context = matches!(settings.origin("client.ca_file"), Some(Origin::Context(_)));
    let file = settings.path("client.ca_file").filter(|_| !of_context || is_server_of_context);
    Ok(file.map(std::path::absolute).transpose()?)
}

/// Opens a session: with a password if an account is named or the server has no OpenID provider, else in the browser.
async fn session(
    context: &Context,
    client: &Client,
    account: Option<String>,
    password_stdin: bool,
    how: &LoginHow,
) -> Result<LoggedIn, Failure> {
    let LoginHow { remember, no_browser } = *how;
    let oidc = match account {
        None => client.login_methods().await?.oidc,
        Some(_) => None,
    };
    if let Some(method) = oidc {
        return browser::log_in(context, client, &method, remember, !no_browser).await;
    }
    if no_browser {
        return Err(Failure::usage("the server has no OpenID provider: the login needs a password")
            .help("omit `--no-browser`"));
    }
    if client.is_plaintext() {
        context.out.warn(format!("the password is sent unencrypted to {}", client.url()));
    }
    let account = match account {
        Some(account) => account,
        None => ask("Account: ").await?,
    };
    let password = if password_stdin { read_password()? } else { ask_secret("Password: ").await? };
    let mut login = LogIn { account, password, code: None, remember, cookie: false };
    let logged_in = match client.log_in(&login).await {
        Err(error) if error.code() == Some(Code::SecondFactorRequired.as_str()) => {
            ensure_terminal("the code of the second factor", "log in on a terminal, or use a token")?;
            login.code = Some(ask_secret("Code of your authenticator app: ").await?);
            client.log_in(&login).await
        }
        result => result,
    };
    logged_in.map_err(|error| refused(error, &login.account))
}

/// Ends the session that a new one replaces. It may have ended before, so errors do not matter.
async fn end(url: &str, token: &str, authority: Option<&[u8]>) {
    let Ok(client) = Client::trusting(url, Some(token), Timeouts::default(), authority) else { return };
    if client.me().await.is_ok_and(|me| me.session) {
        let _ = client.log_out().await;
    }
}

pub(super) async fn log_out(context: &Context) -> Result<(), Failure> {
    let sources = context.sources()?;
    let (client, _) = context.connect()?;
    let ended = match client.me().await {
        Ok(me) if !me.session => {
            let message = format!("cannot log out: the token of {} is no session", escape(&me.name));
            return Err(Failure::usage(message)
                .help("tokens stay valid until they expire or are revoked: see `belfry token revoke`"));
        }
        Ok(me) => {
            client.log_out().await?;
            format!("logged out {} from {}", escape(&me.name), client.url())
        }
        Err(error) if error.code() == Some(Code::Unauthenticated.as_str()) => {
            "the session had already ended".to_owned()
        }
        Err(error) => return Err(error.into()),
    };
    forget(&sources, context.global.context.as_deref())?;
    context.out.note(ended);
    Ok(())
}

/// Deletes the file of the session, and removes it from the context.
fn forget(sources: &Sources, flag: Option<&str>) -> Result<(), Failure> {
    let (Some(path), Some(selected)) = (sources.user_contexts(), contexts::select(sources, flag)?) else {
        return Ok(());
    };
    let file = session_file(&path, &selected.name);
    if selected.settings.token_file.as_ref() != Some(&file) {
        return Ok(());
    }
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let message = format!("cannot delete `{}`: {error}", file.display());
            return Err(Failure::message(Exit::Failed, message));
        }
        _ => {}
    }
    let mut all = Contexts::load(&path)?;
    if let Some(settings) = all.contexts.get_mut(&selected.name) {
        settings.token_file = None;
    }
    all.store(&path)
}

fn refused(error: client::Error, account: &str) -> Failure {
    let is_wrong = error.code() == Some(Code::LoginFailed.as_str());
    let failure = Failure::from(error);
    if is_wrong {
        let account = escape(account);
        return failure.help(format!(
            "check the password of `{account}`; an administrator creates a link for a new one with \
             `belfry account invite {account}`"
        ));
    }
    failure
}

fn no_folder() -> Failure {
    Failure::message(Exit::Failed, "cannot find your configuration directory")
        .help("set $HOME or $XDG_CONFIG_HOME")
}

fn session_file(contexts: &Path, name: &str) -> PathBuf {
    contexts.with_file_name(format!("{name}.{SESSION_FILE}"))
}

fn is_same(a: &str, b: &str) -> bool {
    a.trim_end_matches('/') == b.trim_end_matches('/')
}

fn valid_name(name: String) -> Result<String, Failure> {
    let problem = model::validate::name(&name).err().and_then(|wrong| wrong.problems.into_iter().next());
    match problem {
        None => Ok(name),
        Some(problem) => Err(Failure::usage(format!("--name: {}", problem.message))),
    }
}

/// Returns the name of the context of a server: an existing one with its URL, or a new one with the name of its host.
fn name_for(all: &Contexts, url: &str) -> String {
    let known = all.contexts.iter().find(|(_, settings)| is_same(&settings.url, url));
    if let Some((name, _)) = known {
        return name.clone();
    }
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '-' };
    let base: String = host.trim_matches(['[', ']']).chars().map(plain).take(50).collect();
    let base = if model::validate::name(&base).is_ok() { base } else { "server".to_owned() };
    let is_free = |name: &String| !all.contexts.contains_key(name);
    let mut numbered = std::iter::once(base.clone()).chain((2..).map(|number| format!("{base}-{number}")));
    numbered.find(is_free).unwrap_or(base)
}

/// Asks for a line on the terminal.
async fn ask(prompt: &str) -> Result<String, Failure> {
    ensure_terminal("the account", "use `--account` and `--password-stdin`")?;
    show(prompt)?;
    Ok(read_line().await?.trim().to_owned())
}

/// Asks for a password, a code or the value of a secret on the terminal, without echo.
pub(super) async fn ask_secret(prompt: &str) -> Result<PasswordText, Failure> {
    ensure_terminal("the password", "use a terminal; `belfry login` also has `--password-stdin`")?;
    let silent = Silent::begin()?;
    show(prompt)?;
    let line = read_line().await?;
    drop(silent);
    // The terminal has not shown the end of the line either.
    show("\n")?;
    password(&line)
}

fn show(text: &str) -> std::io::Result<()> {
    let mut stderr = std::io::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Reads a line on a thread of its own, so that Ctrl-C ends the command, and the terminal gets its echo back.
async fn read_line() -> std::io::Result<String> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).map(|_| line);
        let _ = sender.send(read);
    });
    receiver.await.map_err(std::io::Error::other)?
}

fn ensure_terminal(what: &str, help: &'static str) -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(format!("cannot ask for {what}: standard input is not a terminal")).help(help))
}

fn read_password() -> Result<PasswordText, Failure> {
    let mut text = String::new();
    std::io::stdin().lock().take(PASSWORD_BYTES_MAX).read_to_string(&mut text)?;
    password(&text)
}

/// Returns a password without the end of its line. Spaces belong to it.
fn password(line: &str) -> Result<PasswordText, Failure> {
    let text = line.strip_suffix('\n').unwrap_or(line);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(Failure::usage("the password is empty"));
    }
    Ok(PasswordText(text.to_owned()))
}

/// Terminal without echo, until it is dropped.
struct Silent {
    before: Termios,
}

impl Silent {
    fn begin() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin).map_err(std::io::Error::from)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(std::io::Error::from)?;
        Ok(Self { before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Replaces a file that only the user can read.
fn write_private(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::Builder::new().prefix(".session-").tempfile_in(folder)?;
    file.as_file().set_permissions(std::fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contexts(urls: &[(&str, &str)]) -> Contexts {
        let settings =
            |url: &str| ContextSettings { url: url.into(), token_file: None, ca_file: None, namespace: None };
        let contexts = urls.iter().map(|(name, url)| ((*name).to_owned(), settings(url))).collect();
        Contexts { current: None, contexts }
    }

    #[test]
    fn a_context_is_found_by_its_server_or_named_after_the_host() {
        let all =
            contexts(&[("production", "https://belfry.example/"), ("other.example", "https://x.example")]);
        assert_eq!(name_for(&all, "https://belfry.example"), "production");
        assert_eq!(name_for(&all, "http://127.0.0.1:7070"), "127.0.0.1-7070");
        assert_eq!(name_for(&all, "http://[::1]:7070/x"), "server");
        assert_eq!(name_for(&all, "https://other.example"), "other.example-2");
    }

    #[test]
    fn a_password_is_one_line_and_keeps_its_spaces() {
        assert_eq!(password(" two words \r\n").unwrap().0, " two words ");
        assert!(password("\n").is_err());
    }

    #[test]
    fn a_session_file_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = session_file(&folder.path().join("belfry/contexts.toml"), "lab");
        write_private(&path, "one").unwrap();
        write_private(&path, "two").unwrap();
        assert_eq!(path.file_name().unwrap(), "lab.session");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
