//! Selection of the server and the token.
//!
//! The server URL comes from a flag, an environment variable, a context or a file. Without one, it is the address of the
//! user's running `belfry dev`: from its record ([`running`]), else from the files in its data directory. If several
//! run, the command fails, and its hint names `BELFRY_DEV_DATA`.
//!
//! The certificate authority of an `https` server comes from the same sources, else from the system.
//!
//! The token comes from `--token-file`, else `$BELFRY_TOKEN`, else the token file of the context or of the file, else
//! the data directory of that `belfry dev`.
//!
//! # Invariants
//! - The token of a `belfry dev` is sent to its own address only, never to a URL from another source.
//! - No message and no log contains a token.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Timeouts};
use model::Duration;

use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::settings::{Origin, Settings, Sources};

pub(crate) mod running;

/// Default URL of a server on this machine.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";
/// Name of the file in the data directory of `belfry dev` that contains its address, such as `127.0.0.1:7070`.
pub(crate) const ADDRESS_FILE: &str = "address";
/// Hint for a missing or invalid token.
pub(crate) const TOKEN_HELP: &str = "log in with `belfry login`, or set a valid token with `--token-file FILE` or $BELFRY_TOKEN; an \
     administrator creates one with `belfry token create`, and the first admin token of a server is in the file `admin-token` in its data directory";
/// Maximum length of a token, in bytes.
const TOKEN_LEN_MAX: usize = 4096;

/// Creates a client for the configured server. A configured server needs no token: a proxy may add one. Without such a
/// proxy, the server rejects the request.
///
/// # Errors
/// If no server is configured and no `belfry dev` is running, or a token file cannot be read.
pub(crate) fn connect(settings: &Settings, sources: &Sources, out: Output) -> Result<Client, Failure> {
    let Target { url, token } = find(settings, sources)?;
    if url.is_none() && token.is_none() {
        let message = "no server is configured, and your `belfry dev` is not running";
        let help =
            format!("start `belfry dev`, or set the server with `--url` or `belfry context`; {TOKEN_HELP}");
        return Err(Failure::message(Exit::AccessDenied, message).help(help));
    }
    let url = url.unwrap_or_else(|| DEFAULT_URL.to_owned());
    let retry_for =
        settings.duration("client.retry_for").map_or(Timeouts::default().retry_for, Duration::to_std);
    let patience = Timeouts { retry_for, ..Timeouts::default() };
    let ca_file = settings.path("client.ca_file").filter(|_| url.starts_with("https:"));
    let authority = ca_file.as_deref().map(read_authority).transpose()?;
    let client = Client::trusting(&url, token.as_deref(), patience, authority.as_deref())?;
    if token.is_some() && client.is_plaintext() {
        out.warn(format!("the token is sent unencrypted to {}", client.url()));
    }
    Ok(client.on_retry(retry_notice(out)))
}

/// Selected server URL and token.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    url: Option<String>,
    token: Option<String>,
}

fn find(settings: &Settings, sources: &Sources) -> Result<Target, Failure> {
    let url = settings.text("client.url");
    let own = |dev: &Dev| url.as_ref().is_none_or(|url| url.trim_end_matches('/') == dev.url);
    let by_folder = || settings.path("dev.data_dir").and_then(Dev::find).filter(own);
    let is_named = !matches!(settings.origin("dev.data_dir"), None | Some(Origin::Default));
    let dev = if is_named {
        by_folder()
    } else {
        // The default data directory may belong to a killed server, so running servers have precedence.
        single_running(running::all(sources).into_iter().filter(own).collect(), settings)?.or_else(by_folder)
    };
    let token = token(settings, dev.as_ref())?;
    Ok(Target { url: url.or_else(|| dev.map(|dev| dev.url)), token })
}

/// Returns the user's running `belfry dev`, if any. Fails if several are running and the settings do not name one.
fn single_running(mut running: Vec<Dev>, settings: &Settings) -> Result<Option<Dev>, Failure> {
    if running.len() <= 1 || settings.text("client.token").is_some() && settings.text("client.url").is_some()
    {
        return Ok(running.pop());
    }
    let folders: Vec<_> = running.iter().filter_map(|dev| dev.token_file.parent()).collect();
    let shown: Vec<_> = folders.iter().map(|folder| format!("'{}'", folder.display())).collect();
    Err(Failure::usage(format!("{} `belfry dev` servers of your user are running", running.len()))
        .help(format!("set BELFRY_DEV_DATA to the data directory of one of them: {}", shown.join(" or "))))
}

/// Returns a callback that reports the first retry, so that the command does not seem to hang.
fn retry_notice(out: Output) -> client::RetryNotice {
    let said = std::sync::Once::new();
    Arc::new(move |error, _pause| said.call_once(|| out.note(format!("{error}; retrying"))))
}

fn token(settings: &Settings, dev: Option<&Dev>) -> Result<Option<String>, Failure> {
    let file = settings.path("client.token_file");
    let by_flag = matches!(settings.origin("client.token_file"), Some(Origin::Flag(_)));
    if let (true, Some(path)) = (by_flag, &file) {
        return read_token(path).map(Some);
    }
    if let Some(token) = settings.text("client.token") {
        return Ok(Some(token.trim().to_owned()));
    }
    match file.or_else(|| dev.map(|dev| dev.token_file.clone())) {
        Some(path) => read_token(&path).map(Some),
        None => Ok(None),
    }
}

/// Reads a token from a file with one line; `-` is standard input.
pub(crate) fn read_token(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = read.map_err(|error| {
        Failure::message(
            Exit::AccessDenied,
            format!("cannot read the token from `{}`: {error}", path.display()),
        )
        .help("set `--token-file` to a file that you can read")
    })?;
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_LEN_MAX || token.contains(char::is_whitespace) {
        let message = format!(
            "`{}` does not contain a token: expected one line that begins with `bf_`",
            path.display()
        );
        return Err(Failure::message(Exit::AccessDenied, message));
    }
    Ok(token.to_owned())
}

/// Reads a file with certificate authorities.
///
/// # Errors
/// If the file cannot be read, or contains no certificate.
pub(crate) fn read_authority(path: &Path) -> Result<Vec<u8>, Failure> {
    let refused = |detail: String| {
        Failure::usage(format!("cannot use the certificate authority in `{}`: {detail}", path.display()))
            .help("set `--ca-file` (BELFRY_CA_FILE) to a PEM file with the certificate of the authority")
    };
    let pem = std::fs::read(path).map_err(|error| refused(error.to_string()))?;
    client::check_authority(&pem).map_err(|error| match error {
        client::Error::Authority { detail } => refused(detail),
        error => refused(error.to_string()),
    })?;
    Ok(pem)
}

/// Address and token file of a `belfry dev` of the same user.
struct Dev {
    url: String,
    token_file: PathBuf,
}

impl Dev {
    fn find(data_dir: PathBuf) -> Option<Self> {
        let address = std::fs::read_to_string(data_dir.join(ADDRESS_FILE)).ok()?;
        let address: SocketAddr = address.trim().parse().ok()?;
        Some(Self { url: format!("http://{address}"), token_file: data_dir.join("admin-token") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use crate::settings::Sources;

    struct Setup {
        dir: tempfile::TempDir,
        sources: Sources,
    }

    impl Setup {
        /// Creates a user whose `belfry dev` listens on 127.0.0.1:7171.
        fn new(variables: &[(&str, &str)]) -> Self {
            client::install_crypto();
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("address"), "127.0.0.1:7171\n").unwrap();
            std::fs::write(dir.path().join("admin-token"), "bf_admin_dev\n").unwrap();
            let mut sources = Sources::default();
            sources.variables.insert("BELFRY_DEV_DATA".into(), dir.path().display().to_string());
            sources.variables.extend(variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
            Self { dir, sources }
        }

        fn found(&self) -> Target {
            find(&Settings::load(&self.sources).unwrap(), &self.sources).unwrap()
        }

        fn url(&self) -> String {
            self.found().url.unwrap_or_default()
        }

        fn token(&self) -> Option<String> {
            self.found().token
        }

        fn refusal(&self) -> String {
            let settings = Settings::load(&self.sources).unwrap();
            let refused =
                connect(&settings, &self.sources, Output::new(Format::Table, true, true)).err().unwrap();
            refused.render(false).replace(&self.dir.path().display().to_string(), "DIR")
        }

        /// Removes all settings of the data directory of `belfry dev`.
        fn unnamed(&mut self) {
            self.sources.variables.clear();
            self.sources.variables.insert("HOME".into(), self.dir.path().join("home").display().to_string());
            let runtime = self.dir.path().join("run").display().to_string();
            self.sources.variables.insert("XDG_RUNTIME_DIR".into(), runtime);
        }

        /// Adds a running `belfry dev`.
        fn running(&self, name: &str, port: u16) -> running::Record {
            let data = self.dir.path().join(name);
            std::fs::create_dir(&data).unwrap();
            std::fs::write(data.join("admin-token"), format!("bf_admin_{name}\n")).unwrap();
            running::Record::write(&self.sources, SocketAddr::from(([127, 0, 0, 1], port)), &data, name)
                .unwrap()
        }
    }

    /// `belfry dev --data ./elsewhere`, and `belfry job list` in another terminal.
    #[test]
    fn a_dev_server_with_another_folder_is_found_while_it_runs() {
        let mut setup = Setup::new(&[]);
        setup.unnamed();
        let one = setup.running("one", 7001);
        assert_eq!(
            (setup.url().as_str(), setup.token().as_deref()),
            ("http://127.0.0.1:7001", Some("bf_admin_one"))
        );
        let two = setup.running("two", 7002);
        insta::assert_snapshot!(setup.refusal(), @r"
        error: 2 `belfry dev` servers of your user are running
        help: set BELFRY_DEV_DATA to the data directory of one of them: 'DIR/one' or 'DIR/two'
        ");
        drop(two);
        assert_eq!(setup.token().as_deref(), Some("bf_admin_one"));
        setup.sources.variables.insert("BELFRY_URL".into(), "http://127.0.0.1:9".into());
        assert_eq!(setup.token(), None, "its token goes to no other server");
        drop(one);
    }

    /// A killed server does not remove its record.
    #[test]
    fn a_record_of_a_stopped_server_is_ignored() {
        let mut setup = Setup::new(&[]);
        setup.unnamed();
        let record = setup.running("one", 7001);
        record.leave_behind();
        assert_eq!(setup.found(), Target { url: None, token: None });
    }

    #[test]
    fn a_missing_server_is_an_error_with_a_hint() {
        let mut setup = Setup::new(&[]);
        setup.unnamed();
        insta::assert_snapshot!(setup.refusal(), @r"
        error: no server is configured, and your `belfry dev` is not running
        help: start `belfry dev`, or set the server with `--url` or `belfry context`; log in with `belfry login`, or set a valid token with `--token-file FILE` or $BELFRY_TOKEN; an administrator creates one with `belfry token create`, and the first admin token of a server is in the file `admin-token` in its data directory
        ");
    }

    #[test]
    fn a_file_without_a_certificate_is_refused_with_its_name() {
        let mut setup = Setup::new(&[("BELFRY_URL", "https://belfry.example")]);
        let file = setup.dir.path().join("ca.pem");
        setup.sources.variables.insert("BELFRY_CA_FILE".into(), file.display().to_string());
        assert!(
            setup.refusal().contains("cannot use the certificate authority in `DIR/ca.pem`: No such file")
        );
        std::fs::write(&file, "no certificate").unwrap();
        insta::assert_snapshot!(setup.refusal(), @r"
        error: cannot use the certificate authority in `DIR/ca.pem`: it contains no certificate in PEM
        help: set `--ca-file` (BELFRY_CA_FILE) to a PEM file with the certificate of the authority
        ");
    }

    /// A proxy that authenticates its users adds the token of the server.
    #[test]
    fn a_configured_server_needs_no_token() {
        let mut setup = Setup::new(&[]);
        setup.unnamed();
        setup.sources.variables.insert("BELFRY_URL".into(), "http://belfry.example".into());
        let settings = Settings::load(&setup.sources).unwrap();
        let client = connect(&settings, &setup.sources, Output::new(Format::Table, true, true)).unwrap();
        assert_eq!(client.url(), "http://belfry.example");
    }

    #[test]
    fn the_dev_server_of_the_user_is_found_without_configuration() {
        let setup = Setup::new(&[]);
        assert_eq!(
            (setup.url().as_str(), setup.token().as_deref()),
            ("http://127.0.0.1:7171", Some("bf_admin_dev"))
        );
    }

    #[test]
    fn the_token_of_a_dev_server_is_sent_to_no_other_server() {
        let setup = Setup::new(&[("BELFRY_URL", "http://127.0.0.1:9")]);
        assert_eq!((setup.url().as_str(), setup.token()), ("http://127.0.0.1:9", None));
    }

    #[test]
    fn a_configured_token_precedes_that_of_the_dev_server() {
        let mut setup = Setup::new(&[("BELFRY_TOKEN", "bf_env")]);
        assert_eq!(setup.token().as_deref(), Some("bf_env"));
        let file = setup.dir.path().join("other");
        std::fs::write(&file, "bf_file").unwrap();
        setup.sources.flag("client.token_file", "--token-file", Some(file.display()));
        assert_eq!(setup.token().as_deref(), Some("bf_file"));
    }

    #[test]
    fn an_invalid_token_is_refused_without_being_shown() {
        let setup = Setup::new(&[]);
        let file = setup.dir.path().join("private");
        std::fs::write(&file, "my secret diary").unwrap();
        let failure = read_token(&file).unwrap_err();
        assert_eq!(failure.exit(), Exit::AccessDenied);
        assert!(!failure.render(false).contains("diary"));
        assert_eq!(read_token(&setup.dir.path().join("missing")).unwrap_err().exit(), Exit::AccessDenied);
    }
}
