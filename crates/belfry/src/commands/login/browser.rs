//! Login in the browser, at the OpenID provider of the server (RFC 8252: authorization of native programs).
//!
//! ```text
//! belfry: port, secret ──challenge──> browser ──> server ──> provider ──> server
//!         <── http://127.0.0.1:PORT/?code=… ── browser <────────────────────┘
//! belfry ──code, secret──> server ──> session
//! ```
//!
//! # Invariants
//! - The secret leaves the program only in the request to the server. The code alone is of no use.
//! - A result counts only with the `state` of this login, so another page of the browser cannot send one.

use std::io::IsTerminal as _;
use std::process::Stdio;
use std::time::Duration;

use client::Client;
use model::api::{ExchangeOidcCode, LoggedIn, OidcMethod, OidcProblem, PasswordText};
use server::oidc::{challenge_of, random_text};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::Context;
use super::read_line;
use crate::failure::{Exit, Failure};

/// Longest wait for the person: as long as the server waits.
const PATIENCE: Duration = Duration::from_secs(600);
/// Longest request of the browser, in bytes, and longest time in which it arrives.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of a login that the browser brings.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Code(String),
    Failed(String),
}

/// Logs in with the browser.
pub(super) async fn log_in(
    context: &Context,
    client: &Client,
    method: &OidcMethod,
    remember: bool,
    opens_browser: bool,
) -> Result<LoggedIn, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let (verifier, state) = (random_text(), random_text());
    let url = format!(
        "{}/api/v1/login/oidc/cli?port={port}&challenge={}&state={state}&remember={remember}",
        method.url,
        challenge_of(&verifier)
    );
    let is_opened = opens_browser && open(&url);
    let what = if is_opened { "if your browser does not open, open this page" } else { "open this page" };
    context.out.note(format!("{what} to log in with {}:\n{url}", crate::output::text::escape(&method.name)));
    let asks = !is_opened && std::io::stdin().is_terminal();
    if asks {
        context.out.note(
            "if the browser is on another machine, it cannot reach this one: paste the address of its last page here",
        );
    }
    let waited = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            outcome = from_browser(&listener, &state) => outcome,
            outcome = from_terminal(&state), if asks => outcome,
        }
    });
    let outcome = waited.await.map_err(|_| {
        Failure::message(Exit::Failed, "the login has expired: no result came from the browser")
            .help("run `belfry login` again, or log in with a password: `belfry login --account NAME`")
    })??;
    match outcome {
        Outcome::Code(code) => {
            let exchange = ExchangeOidcCode { code, verifier: PasswordText(verifier) };
            Ok(client.exchange_oidc_code(&exchange).await?)
        }
        Outcome::Failed(word) => {
            let message = OidcProblem::from_word(&word).map_or("the login failed", OidcProblem::message);
            Err(Failure::message(Exit::Failed, format!("cannot log in: {message}")))
        }
    }
}

/// Opens a page in the browser. Returns whether a program for this was started.
fn open(url: &str) -> bool {
    let programs = [std::env::var("BROWSER").unwrap_or_default(), "xdg-open".into(), "open".into()];
    let start = |program: &String| {
        let mut command = std::process::Command::new(program);
        command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
    };
    programs.iter().filter(|program| !program.is_empty()).any(start)
}

/// Waits for the request of the browser with the result.
async fn from_browser(listener: &TcpListener, state: &str) -> Result<Outcome, Failure> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        // A browser may open connections without a request.
        let Ok(Ok(target)) = tokio::time::timeout(REQUEST_TIMEOUT, target(&mut stream)).await else {
            continue;
        };
        let outcome = outcome(&target, state);
        let _ = stream.write_all(response(outcome.as_ref()).as_bytes()).await;
        let _ = stream.shutdown().await;
        if let Some(outcome) = outcome {
            return Ok(outcome);
        }
    }
}

/// Waits for the address of the last page of a browser on another machine.
async fn from_terminal(state: &str) -> Result<Outcome, Failure> {
    loop {
        let line = read_line().await?;
        if line.is_empty() {
            // The end of the input: only the browser can bring the result now.
            std::future::pending::<()>().await;
        }
        if let Some(outcome) = outcome(line.trim(), state) {
            return Ok(outcome);
        }
        super::show(
            "this is not the address of the last page of this login: it begins with http://127.0.0.1:\n",
        )?;
    }
}

/// Returns the target of a request, such as `/?code=…`.
async fn target(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 2_048];
        let read = stream.read(&mut part).await?;
        request.extend_from_slice(&part[..read]);
        if read == 0 || request.len() > REQUEST_BYTES_MAX {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
    }
    let text = String::from_utf8_lossy(&request);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => Ok(target.to_owned()),
        _ => Err(std::io::ErrorKind::InvalidData.into()),
    }
}

/// Returns the result in an address; `None` if it is not the result of this login.
fn outcome(address: &str, state: &str) -> Option<Outcome> {
    let (_, query) = address.split_once("/?")?;
    let of = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(found, _)| *found == name).map(|(_, value)| decoded(value)).next()
    };
    if of("state")? != state {
        return None;
    }
    of("code").map(Outcome::Code).or_else(|| of("error").map(Outcome::Failed))
}

/// Decodes a value of a query. Results have only ASCII characters.
fn decoded(value: &str) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        text.push_str(&rest[..at]);
        let byte = rest.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        text.push(byte.map_or('\u{fffd}', char::from));
        rest = rest.get(at + 3..).unwrap_or_default();
    }
    text + rest
}

/// Returns the page that the browser shows.
fn response(outcome: Option<&Outcome>) -> String {
    let (status, texts) = match outcome {
        Some(Outcome::Code(_)) => ("200 OK", ["You are logged in.", "已登录。"]),
        Some(Outcome::Failed(_)) => ("200 OK", ["The login failed.", "登录失败。"]),
        None => ("404 Not Found", ["Nothing is here.", "此处没有内容。"]),
    };
    let hint = match outcome {
        Some(_) => "<p>Close this page and return to the terminal. 请关闭此页面，回到终端。</p>",
        None => "",
    };
    let page = format!(
        "<!doctype html><meta charset=utf-8><title>Belfry</title><h1>{} {}</h1>{hint}\n",
        texts[0], texts[1]
    );
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\n\
         content-security-policy: default-src 'none'\r\nconnection: close\r\n\r\n{page}",
        page.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_belongs_to_its_login() {
        let code = Some(Outcome::Code("v1.a+b/c=".into()));
        assert_eq!(outcome("/?code=v1.a%2Bb%2Fc%3D&state=s", "s"), code);
        assert_eq!(outcome("http://127.0.0.1:4711/?code=v1.a%2Bb%2Fc%3D&state=s", "s"), code);
        assert_eq!(outcome("/?error=no_account&state=s", "s"), Some(Outcome::Failed("no_account".into())));
        for address in ["/?code=x&state=other", "/?code=x", "/favicon.ico", "/?state=s", ""] {
            assert_eq!(outcome(address, "s"), None, "{address}");
        }
        assert_eq!(decoded("%"), "\u{fffd}");
        assert_eq!(decoded("%zz"), "\u{fffd}");
    }

    #[tokio::test]
    async fn the_browser_brings_the_result_after_other_requests() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let browser = tokio::spawn(async move {
            let mut pages = Vec::new();
            for target in ["/favicon.ico", "/?code=guess&state=guess", "/?code=abc&state=s"] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream
                    .write_all(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes())
                    .await
                    .unwrap();
                let mut page = String::new();
                stream.read_to_string(&mut page).await.unwrap();
                pages.push(page);
            }
            pages
        });
        assert_eq!(from_browser(&listener, "s").await.unwrap(), Outcome::Code("abc".into()));
        let pages = browser.await.unwrap();
        assert!(pages[0].starts_with("HTTP/1.1 404") && pages[1].starts_with("HTTP/1.1 404"), "{pages:?}");
        assert!(pages[2].contains("You are logged in"), "{pages:?}");
    }
}
