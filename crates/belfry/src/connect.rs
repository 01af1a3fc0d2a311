//! Finding the server and the token.
//!
//! A server is named by flag, variable or file; else it is the `belfry dev` of the same user, which
//! leaves its address and its token in its data folder. The token of that folder goes to that
//! server only: never to an address that somebody else wrote down.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Patience};
use model::Duration;

use crate::failure::{Exit, Failure};
use crate::output::Out;
use crate::settings::{Origin, Settings};

/// Where a server listens unless told otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:7070";
/// In the data folder of `belfry dev`: where it listens, as `127.0.0.1:7070`.
pub(crate) const ADDRESS_FILE: &str = "address";
/// No token is longer.
const TOKEN_LEN_MAX: usize = 4096;

/// A client for the server that the settings lead to.
pub(crate) fn connect(settings: &Settings, out: Out) -> Result<Client, Failure> {
    let dev = settings.path("dev.data_dir").and_then(Dev::find);
    let url = settings.text("client.url");
    let dev = dev.filter(|dev| url.as_ref().is_none_or(|url| url.trim_end_matches('/') == dev.url));
    let token = token(settings, dev.as_ref())?;
    let url = url.or_else(|| dev.map(|dev| dev.url)).unwrap_or_else(|| DEFAULT_URL.to_owned());

    let retry_for =
        settings.duration("client.retry_for").map_or(Patience::default().retry_for, Duration::to_std);
    let patience = Patience { retry_for, ..Patience::default() };
    let client = Client::with_patience(&url, token.as_deref(), patience)?;
    if client.is_plaintext() && token.is_some() {
        out.warn(format!("the token travels unencrypted to {}", client.url()));
    }
    Ok(client.on_retry(announce(out)))
}

/// Says once that a request is tried again, so that a wait is not taken for a hang.
fn announce(out: Out) -> client::RetryNotice {
    let said = std::sync::Once::new();
    Arc::new(move |error, _pause| said.call_once(|| out.note(format!("{error}; trying again"))))
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

/// Reads a token from a file of one line; `-` is standard input.
pub(crate) fn read_token(path: &Path) -> Result<String, Failure> {
    let read = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = read.map_err(|error| {
        Failure::message(Exit::Refused, format!("cannot read the token from `{}`: {error}", path.display()))
            .help("name a file that you may read with `--token-file`")
    })?;
    let token = text.trim();
    if token.is_empty() || token.len() > TOKEN_LEN_MAX || token.contains(char::is_whitespace) {
        let message =
            format!("`{}` holds no token: expected one line that begins with `bf_`", path.display());
        return Err(Failure::message(Exit::Refused, message));
    }
    Ok(token.to_owned())
}

/// A `belfry dev` of the same user.
struct Dev {
    url: String,
    token_file: PathBuf,
}

impl Dev {
    fn find(data_dir: PathBuf) -> Option<Self> {
        let address = std::fs::read_to_string(data_dir.join(ADDRESS_FILE)).ok()?;
        let address: std::net::SocketAddr = address.trim().parse().ok()?;
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
        /// A user with a `belfry dev` at 127.0.0.1:7171.
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

        fn url(&self) -> String {
            let settings = Settings::load(&self.sources).unwrap();
            connect(&settings, Out::new(Format::Table, true, true)).unwrap().url().to_owned()
        }

        fn token(&self) -> Option<String> {
            let settings = Settings::load(&self.sources).unwrap();
            let dev = settings.path("dev.data_dir").and_then(Dev::find);
            let url = settings.text("client.url");
            let dev = dev.filter(|dev| url.as_ref().is_none_or(|url| *url == dev.url));
            token(&settings, dev.as_ref()).unwrap()
        }
    }

    #[test]
    fn the_dev_server_of_the_user_is_found_by_itself() {
        let setup = Setup::new(&[]);
        assert_eq!(
            (setup.url().as_str(), setup.token().as_deref()),
            ("http://127.0.0.1:7171", Some("bf_admin_dev"))
        );
    }

    #[test]
    fn its_token_goes_to_no_other_server() {
        let setup = Setup::new(&[("BELFRY_URL", "http://127.0.0.1:9")]);
        assert_eq!((setup.url().as_str(), setup.token()), ("http://127.0.0.1:9", None));
    }

    #[test]
    fn a_named_token_goes_before_that_of_the_dev_server() {
        let mut setup = Setup::new(&[("BELFRY_TOKEN", "bf_env")]);
        assert_eq!(setup.token().as_deref(), Some("bf_env"));
        let file = setup.dir.path().join("other");
        std::fs::write(&file, "bf_file").unwrap();
        setup.sources.flag("client.token_file", "--token-file", Some(file.display()));
        assert_eq!(setup.token().as_deref(), Some("bf_file"));
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        let setup = Setup::new(&[]);
        let file = setup.dir.path().join("private");
        std::fs::write(&file, "my secret diary").unwrap();
        let failure = read_token(&file).unwrap_err();
        assert_eq!(failure.exit(), Exit::Refused);
        assert!(!failure.render(false).contains("diary"));
        assert_eq!(read_token(&setup.dir.path().join("missing")).unwrap_err().exit(), Exit::Refused);
    }

    #[test]
    fn without_anything_it_is_the_default_address_without_a_token() {
        let mut setup = Setup::new(&[]);
        setup.sources.variables.clear();
        assert_eq!((setup.url().as_str(), setup.token()), (DEFAULT_URL, None));
    }
}
