//! Delivery of messages by HTTP and SMTP.

use std::sync::Arc;
use std::time::Duration;

use alerts::message::Message;
use alerts::target::{self, Delivery, Email, Refused, Request, Retry};
use lettre::message::{Mailbox, MultiPart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use model::Timestamp;
use model::alert::{SecretText, Target};
use model::error_chain::Chain;

use crate::networks::{self, Forbidden, Networks};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time of a delivery by SMTP with the lookup of the server, and attempts at several addresses.
const MAIL_TIMEOUT: Duration = Duration::from_secs(60);
/// Most bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends messages to services.
pub(super) struct Sender {
    http: reqwest::Client,
    networks: Arc<Networks>,
}

impl Sender {
    pub(super) fn new(networks: Networks) -> Self {
        let networks = Arc::new(networks);
        let http = networks::guarded_client(&networks, CONNECT_TIMEOUT, TIMEOUT);
        Self { http, networks }
    }

    /// Sends a message to a target.
    pub(super) async fn send(
        &self,
        target: &Target,
        message: &Message,
        now: Timestamp,
    ) -> Result<(), Refused> {
        match target::render(target, message, now) {
            Delivery::Http(request) => self.post(target, request).await,
            Delivery::Email(email) => tokio::time::timeout(MAIL_TIMEOUT, self.mail(target, email))
                .await
                .unwrap_or_else(|_elapsed| Err(later("the SMTP server did not answer in time"))),
        }
    }

    async fn post(&self, target: &Target, request: Request) -> Result<(), Refused> {
        let url = reqwest::Url::parse(&request.url).map_err(|_| never("the URL is invalid"))?;
        self.networks.check_url(&url).map_err(|forbidden| never(&forbidden.to_string()))?;
        let mut post = self.http.post(url).body(request.body);
        for (name, value) in request.headers {
            post = post.header(name, value);
        }
        let answer = post.send().await.map_err(|error| unreachable(&error))?;
        let status = answer.status().as_u16();
        let retry_after = answer.headers().get(reqwest::header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        let body = first_bytes(answer).await;
        target::judge(target, status, retry_after.map(model::Duration::from_secs), &body)
    }

    async fn mail(&self, target: &Target, email: Email) -> Result<(), Refused> {
        let Target::Email { server, username, password, .. } = target else {
            return Err(never("the channel is not for e-mail"));
        };
        let message = mime(&email).map_err(|reason| never(&reason))?;
        let (security, address) = server.split_once("://").unwrap_or(("smtps", server));
        let default_port = match security {
            "smtps" => 465,
            "smtp+starttls" => 587,
            _ => 25,
        };
        let (host, port) = host_and_port(address, default_port);
        let found = self.networks.resolve(host, port).await.map_err(|error| {
            let is_forbidden = error.get_ref().is_some_and(|inner| inner.is::<Forbidden>());
            let retry = if is_forbidden { Retry::Never } else { Retry::Later };
            Refused { reason: format!("cannot reach `{host}`: {error}"), retry }
        })?;
        let tls = TlsParameters::new(host.to_owned()).map_err(|error| never(&error.to_string()))?;
        let tls = match security {
            "smtps" => Tls::Wrapper(tls),
            "smtp+starttls" => Tls::Required(tls),
            _ => Tls::None,
        };
        let mut result = Err(later(&format!("the SMTP server `{host}` has no address")));
        for address in found {
            let mut transport =
                AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(address.ip().to_string())
                    .port(port)
                    .tls(tls.clone())
                    .timeout(Some(CONNECT_TIMEOUT));
            if let (Some(username), Some(password)) = (username, password) {
                transport = transport.credentials(credentials(username, password));
            }
            let sent = tokio::time::timeout(TIMEOUT, transport.build().send(message.clone())).await;
            let (reason, retry) = match sent {
                Ok(Ok(_accepted)) => return Ok(()),
                Ok(Err(error)) => {
                    let retry = if error.is_permanent() { Retry::Never } else { Retry::Later };
                    (format!("the SMTP server `{host}` did not accept it: {}", Chain(&error)), retry)
                }
                Err(_elapsed) => (format!("the SMTP server `{host}` did not answer in time"), Retry::Later),
            };
            result = Err(Refused { reason, retry });
            // A server that answers has seen the message: the next address is the same server.
            if retry == Retry::Never {
                break;
            }
        }
        result
    }
}

fn credentials(username: &str, password: &SecretText) -> Credentials {
    Credentials::new(username.to_owned(), password.expose().to_owned())
}

fn host_and_port(address: &str, default: u16) -> (&str, u16) {
    match address.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) => {
            (host.trim_matches(['[', ']']), port.parse().unwrap_or(default))
        }
        _ => (address.trim_matches(['[', ']']), default),
    }
}

fn mime(email: &Email) -> Result<lettre::Message, String> {
    let mailbox = |text: &str| text.parse::<Mailbox>().map_err(|error| format!("`{text}`: {error}"));
    let mut message = lettre::Message::builder().from(mailbox(&email.from)?).subject(&email.subject);
    for recipient in &email.to {
        message = message.to(mailbox(recipient)?);
    }
    let body = MultiPart::alternative_plain_html(email.text.clone(), email.html.clone());
    message.multipart(body).map_err(|error| error.to_string())
}

/// Describes why a service was not reached, without its URL, which can be secret.
fn unreachable(error: &reqwest::Error) -> Refused {
    let mut source = std::error::Error::source(error);
    let mut reason =
        if error.is_timeout() { "the service did not answer in time" } else { "cannot reach the service" }
            .to_owned();
    while let Some(cause) = source {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            return never(&forbidden.to_string());
        }
        if let Some(io) = cause.downcast_ref::<std::io::Error>()
            && let Some(forbidden) = io.get_ref().and_then(|inner| inner.downcast_ref::<Forbidden>())
        {
            return never(&forbidden.to_string());
        }
        reason = format!("cannot reach the service: {cause}");
        source = cause.source();
    }
    later(&reason)
}

fn never(reason: &str) -> Refused {
    Refused { reason: reason.to_owned(), retry: Retry::Never }
}

fn later(reason: &str) -> Refused {
    Refused { reason: reason.to_owned(), retry: Retry::Later }
}

async fn first_bytes(mut answer: reqwest::Response) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES_MAX
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(ANSWER_BYTES_MAX);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_smtp_server_has_a_host_and_a_port() {
        for (address, host, port) in [
            ("mail.example.com", "mail.example.com", 25),
            ("mail.example.com:2525", "mail.example.com", 2525),
            ("[::1]:26", "::1", 26),
            ("::1", "::1", 25),
        ] {
            assert_eq!(host_and_port(address, 25), (host, port));
        }
    }
}
