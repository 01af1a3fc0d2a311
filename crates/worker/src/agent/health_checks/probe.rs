//! A single health check: an HTTP request, a TCP connection, a gRPC call, or a command.
//!
//! Network checks go to `127.0.0.1`, each over a new connection. A check that is dropped, for example at its timeout
//! or when the execution has ended, leaves nothing behind: the connection is closed, and the process group of a
//! command is killed.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use model::spec::{CheckedPort, HealthCheck, HttpCheck};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::command::{self, CommandContext};
use super::grpc;

/// Maximum size of the body of a response that is read, in bytes, and maximum time for it. The status alone decides;
/// the rest of the body is read only so that the task can write it.
const BODY_BYTES_MAX: usize = 10 << 10;
const BODY_MAX: Duration = Duration::from_millis(100);

/// A health check with its port and its timeout.
#[derive(Debug)]
pub(super) struct Probe {
    action: Action,
    timeout: Duration,
}

#[derive(Debug)]
enum Action {
    Http {
        port: u16,
        check: HttpCheck,
    },
    Tcp {
        port: u16,
    },
    Grpc {
        port: u16,
        service: String,
    },
    Command(Vec<String>),
    /// The spec contains no check that this worker can run.
    Invalid(String),
}

impl Probe {
    /// Creates the probe of a check; `ports` are the ports of the execution by name.
    pub(super) fn new(check: &HealthCheck, ports: &BTreeMap<String, u32>) -> Self {
        let action = action(check, ports).unwrap_or_else(Action::Invalid);
        Self { action, timeout: Duration::from_millis(check.timeout.as_millis()) }
    }

    /// Runs the check.
    ///
    /// # Errors
    /// The reason why the check failed.
    pub(super) async fn run(&self, context: &CommandContext) -> Result<(), String> {
        let check = async {
            match &self.action {
                Action::Http { port, check } => get(*port, check).await.map(Some),
                Action::Tcp { port } => connect(*port).await.map(|_| None),
                Action::Grpc { port, service } => grpc::check(*port, service).await.map(|()| None),
                Action::Command(argv) => command::run(argv, context).await.map(|()| None),
                Action::Invalid(reason) => Err(reason.clone()),
            }
        };
        let answer = timeout(self.timeout, check).await.map_err(|_| self.late())??;
        if let Some(answer) = answer {
            // Its end is not part of the check.
            timeout(BODY_MAX, answer.drain()).await.ok();
        }
        Ok(())
    }

    fn late(&self) -> String {
        let what = if matches!(self.action, Action::Command(_)) { "did not exit" } else { "no response" };
        format!("{what} within {}", model::Duration::from(self.timeout))
    }
}

fn action(check: &HealthCheck, ports: &BTreeMap<String, u32>) -> Result<Action, String> {
    if let Some(http) = &check.http {
        return Ok(Action::Http { port: number(&http.port, ports)?, check: http.clone() });
    }
    if let Some(tcp) = &check.tcp {
        return Ok(Action::Tcp { port: number(&tcp.port, ports)? });
    }
    if let Some(grpc) = &check.grpc {
        return Ok(Action::Grpc { port: number(&grpc.port, ports)?, service: grpc.service.clone() });
    }
    if check.command.is_empty() {
        return Err("the worker does not support this kind of check".into());
    }
    Ok(Action::Command(check.command.clone()))
}

fn number(port: &CheckedPort, ports: &BTreeMap<String, u32>) -> Result<u16, String> {
    match port {
        CheckedPort::Number(number) => Ok(*number),
        CheckedPort::Name(name) => ports
            .get(name)
            .and_then(|number| u16::try_from(*number).ok())
            .ok_or_else(|| format!("the job has no port `{name}`")),
    }
}

async fn connect(port: u16) -> Result<TcpStream, String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
    stream.map_err(|error| format!("cannot connect to port {port}: {}", describe(&error)))
}

/// Returns the text of an I/O error without its number.
fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".into(),
        _ => error.to_string(),
    }
}

/// A successful response. The connection is closed when it is dropped.
struct Answer {
    body: Incoming,
    _connection: JoinSet<()>,
}

impl Answer {
    async fn drain(mut self) {
        let mut left = BODY_BYTES_MAX;
        while let Some(Ok(frame)) = self.body.frame().await {
            let len = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(len) else { return };
            left = rest;
        }
    }
}

/// Sends an HTTP request; follows no redirect.
async fn get(port: u16, check: &HttpCheck) -> Result<Answer, String> {
    let request = request(port, check)?;
    let stream = connect(port).await?;
    let failed = |error: hyper::Error| format!("HTTP request failed: {error}");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let mut running = JoinSet::new();
    running.spawn(async move {
        // An error of the connection is also the error of the request.
        connection.await.ok();
    });
    let response: Response<Incoming> = sender.send_request(request).await.map_err(failed)?;
    let status = response.status();
    if !(200..400).contains(&status.as_u16()) {
        return Err(format!("HTTP status {}", status.as_u16()));
    }
    Ok(Answer { body: response.into_body(), _connection: running })
}

fn request(port: u16, check: &HttpCheck) -> Result<Request<Empty<Bytes>>, String> {
    let mut request = Request::get(check.path.as_str())
        .body(Empty::new())
        .map_err(|error| format!("invalid HTTP path `{}`: {error}", check.path))?;
    let headers = request.headers_mut();
    for (name, value) in &check.headers {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("invalid HTTP header `{name}`"))?;
        let value =
            HeaderValue::from_str(value).map_err(|_| format!("invalid value of HTTP header `{name}`"))?;
        headers.insert(name, value);
    }
    let host = HeaderValue::from_str(&format!("{}:{port}", Ipv4Addr::LOCALHOST));
    headers.entry(HOST).or_insert(host.map_err(|error| error.to_string())?);
    let agent = concat!("belfry-worker/", env!("CARGO_PKG_VERSION"));
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

#[cfg(test)]
mod tests {
    use model::spec::{GrpcCheck, TcpCheck};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn context() -> CommandContext {
        CommandContext::default()
    }

    fn http(port: u16, timeout_ms: u64) -> HealthCheck {
        let path = "/ready?full=1".to_owned();
        let headers = BTreeMap::from([("X-Check".to_owned(), "yes".to_owned())]);
        let check = HttpCheck { port: CheckedPort::Number(port), path, headers };
        HealthCheck {
            http: Some(check),
            timeout: model::Duration::from_millis(timeout_ms),
            ..HealthCheck::new()
        }
    }

    async fn run(check: &HealthCheck) -> Result<(), String> {
        Probe::new(check, &BTreeMap::new()).run(&context()).await
    }

    /// Answers one connection with `answer`, and then waits for its end; returns the port and the request.
    async fn answering(answer: String) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 4096];
            let len = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Ends when the check closes the connection.
            stream.read_u8().await.ok();
            String::from_utf8_lossy(&request[..len]).into_owned()
        });
        (port, served)
    }

    #[tokio::test]
    async fn an_http_check_succeeds_with_a_status_from_200_to_399() {
        for (status, expected) in [
            ("200 OK", Ok(())),
            ("204 No Content", Ok(())),
            ("301 Moved Permanently\r\nlocation: /elsewhere", Ok(())),
            ("404 Not Found", Err("HTTP status 404".to_owned())),
            ("500 Oops", Err("HTTP status 500".to_owned())),
        ] {
            let (port, served) = answering(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")).await;
            assert_eq!(run(&http(port, 5_000)).await, expected);
            let request = served.await.unwrap().to_lowercase();
            assert!(request.starts_with("get /ready?full=1 http/1.1\r\n"), "{request}");
            assert!(
                request.contains("x-check: yes\r\n") && request.contains("host: 127.0.0.1:"),
                "{request}"
            );
        }
    }

    #[tokio::test]
    async fn an_http_check_does_not_wait_for_a_whole_body() {
        let (port, served) = answering("HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\nx".into()).await;
        assert_eq!(run(&http(port, 5_000)).await, Ok(()));
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_does_not_respond_in_time_fails_the_check() {
        let (port, served) = answering(String::new()).await;
        assert_eq!(run(&http(port, 100)).await, Err("no response within 100ms".into()));
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_response_that_is_not_http_fails_the_check() {
        let (port, _served) = answering("hello\r\n\r\n".into()).await;
        assert!(run(&http(port, 5_000)).await.unwrap_err().starts_with("HTTP request failed: "));
    }

    #[tokio::test]
    async fn a_tcp_check_succeeds_while_the_port_is_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let check = HealthCheck {
            tcp: Some(TcpCheck { port: CheckedPort::Name("db".into()) }),
            ..HealthCheck::new()
        };
        let ports = BTreeMap::from([("db".to_owned(), u32::from(port))]);
        assert_eq!(Probe::new(&check, &ports).run(&context()).await, Ok(()));
        drop(listener);
        let error = Probe::new(&check, &ports).run(&context()).await.unwrap_err();
        assert_eq!(error, format!("cannot connect to port {port}: connection refused"));
        assert_eq!(run(&check).await, Err("the job has no port `db`".into()));
    }

    #[tokio::test]
    async fn a_grpc_check_fails_without_a_grpc_server() {
        let (port, _served) = answering("hello".into()).await;
        let grpc = GrpcCheck { port: CheckedPort::Number(port), service: String::new() };
        let check = HealthCheck {
            grpc: Some(grpc),
            timeout: model::Duration::from_millis(2_000),
            ..HealthCheck::new()
        };
        assert!(run(&check).await.is_err());
    }
}
