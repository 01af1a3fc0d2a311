//! Executions against a small server on this machine, which returns scripted replies.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use model::spec::{HttpMethod, HttpPoll};
use regex::Regex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;

/// Reply of the server to one request.
enum Reply {
    /// Status line after the version, header lines, and body.
    Full(&'static str, String, Vec<u8>),
    /// Closes the connection.
    Close,
    /// Sends nothing, and keeps the connection open.
    Silence,
}

fn reply(status: &'static str, headers: &str, body: &str) -> Reply {
    Reply::Full(status, headers.to_owned(), body.as_bytes().to_vec())
}

fn ok(body: &str) -> Reply {
    reply("200 OK", "", body)
}

/// Server with one reply for each request, in order.
struct Server {
    url: String,
    received: Arc<Mutex<Vec<String>>>,
    arrived: Arc<Notify>,
}

impl Server {
    async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (received, arrived) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        tokio::spawn(serve(
            listener,
            replies.into_iter().collect(),
            Arc::clone(&received),
            Arc::clone(&arrived),
        ));
        Self { url, received, arrived }
    }

    /// Returns the requests, as they were received.
    fn requests(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the first lines of the requests, without the version.
    fn targets(&self) -> Vec<String> {
        let line = |request: &String| request.lines().next().unwrap().replace(" HTTP/1.1", "");
        self.requests().iter().map(line).collect()
    }
}

async fn serve(
    listener: TcpListener,
    mut replies: VecDeque<Reply>,
    received: Arc<Mutex<Vec<String>>>,
    arrived: Arc<Notify>,
) {
    let mut open = Vec::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = read_request(&mut stream).await;
        received.lock().unwrap().push(request);
        arrived.notify_one();
        match replies.pop_front().expect("there are more requests than replies") {
            Reply::Full(status, headers, body) => {
                let head = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
                    body.len()
                );
                let bytes = [head.as_bytes(), &body].concat();
                // The client closes the connection early if the body is too large.
                let _ = stream.write_all(&bytes).await;
            }
            Reply::Close => {}
            Reply::Silence => open.push(stream),
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let at = request.len();
        reader.read_line(&mut request).await.unwrap();
        let line = &request[at..];
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await.unwrap();
    request + &String::from_utf8(body).unwrap()
}

/// Result of an execution.
struct Ran {
    end: End,
    output: String,
    errors: String,
    outputs: Option<String>,
}

impl Ran {
    /// Returns the end as `start_failed code: detail`.
    fn end(&self) -> String {
        match &self.end {
            End::Code(code) => format!("exit code {code}"),
            End::Signal(number) => format!("signal {number}"),
            End::Reported(ShimReport::StartFailed { code, detail }) => {
                stable(&format!("start_failed {code}: {detail}"))
            }
            End::Reported(ShimReport::Failed { code, detail }) => stable(&format!("failed {code}: {detail}")),
            End::Reported(other) => format!("{other:?}"),
        }
    }
}

/// Replaces addresses and times.
fn stable(text: &str) -> String {
    let text = Regex::new(r"127\.0\.0\.1:\d+").unwrap().replace_all(text, "SERVER");
    let text = Regex::new(r"localhost:\d+").unwrap().replace_all(&text, "NAME");
    Regex::new(r"in \d+ ms").unwrap().replace_all(&text, "in N ms").into_owned()
}

async fn run_http(http: HttpRun) -> Ran {
    run_http_until(std::future::pending(), http).await
}

async fn run_http_until(stop: impl Future<Output = i32>, http: HttpRun) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("output.json");
    let variables = BTreeMap::from([
        ("BELFRY_JOB_ID", "job_1".to_owned()),
        ("BELFRY_EXECUTION_ID", "exec_1".to_owned()),
        ("BELFRY_ATTEMPT", "2".to_owned()),
        ("BELFRY_FENCE", "7".to_owned()),
        ("BELFRY_OUTPUT", path.to_str().unwrap().to_owned()),
    ]);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    let mut log = Log::new(&mut output, &mut errors);
    let end = run_until(stop, &http, &|name| variables.get(name).cloned(), &mut log).await;
    Ran {
        end,
        output: stable(std::str::from_utf8(&output).unwrap()),
        errors: stable(std::str::from_utf8(&errors).unwrap()),
        outputs: std::fs::read_to_string(path).ok(),
    }
}

fn get(url: impl Into<String>) -> HttpRun {
    HttpRun { url: url.into(), ..HttpRun::default() }
}

fn post(url: impl Into<String>, body: &str) -> HttpRun {
    HttpRun { body: Some(body.into()), ..get(url) }
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn polling(url: Option<&str>, done_if: Option<&str>) -> Option<HttpPoll> {
    Some(HttpPoll {
        url: url.map(Into::into),
        interval: Some(model::Duration::from_millis(1)),
        done_if: done_if.map(Into::into),
    })
}

#[tokio::test]
async fn a_response_of_success_gives_the_outputs() {
    let server =
        Server::start([reply("201 Created", "x-id: 9\r\n", r#"{"data": {"id": "a", "n": [1]}}"#)]).await;
    let ran = run_http(HttpRun {
        success_if: Some("size(body.data.n) == 1".into()),
        outputs: map(&[
            ("id", "body.data.id"),
            ("all", "body.data.n"),
            ("status", "status"),
            ("x", r#"headers["x-id"]"#),
        ]),
        ..get(&server.url)
    })
    .await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.outputs.unwrap(), @r#"{"all":[1],"id":"a","status":201,"x":"9"}"#);
    insta::assert_snapshot!(ran.output, @r#"
    > GET http://SERVER/
    < 201 Created, 31 bytes in N ms
    {"data": {"id": "a", "n": [1]}}
    "#);
    assert_eq!(ran.errors, "");
}

#[tokio::test]
async fn without_outputs_no_file_is_written() {
    let server = Server::start([ok("{}")]).await;
    assert_eq!(run_http(get(&server.url)).await.outputs, None);
}

#[tokio::test]
async fn an_output_without_a_value_fails_the_execution() {
    let server = Server::start([ok("{}"), ok(&"x".repeat(OUTPUT_BYTES_MAX))]).await;
    let outputs = map(&[("id", "body.id")]);
    let ran = run_http(HttpRun { outputs, ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"failed output_invalid: cannot evaluate `run.http.outputs.id`: `body.id`: there is no field `id`");
    let ran = run_http(HttpRun { outputs: map(&[("all", "body")]), ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"failed output_invalid: the outputs have 65546 bytes: expected at most 65536");
    assert_eq!(ran.outputs, None);
}

#[tokio::test]
async fn an_unexpected_status_fails_the_execution() {
    let server = Server::start([
        reply("500 Internal Server Error", "", "oh"),
        ok(""),
        reply("204 No Content", "", ""),
    ])
    .await;
    let ran = run_http(get(&server.url)).await;
    insta::assert_snapshot!(ran.end(), @"failed unexpected_status: the response has status 500 Internal Server Error: expected 2xx");
    insta::assert_snapshot!(ran.errors, @"belfry: the response has status 500 Internal Server Error: expected 2xx");
    let only = |ranges: &[&str]| HttpRun {
        success_status: ranges.iter().map(|range| (*range).to_owned()).collect(),
        ..get(&server.url)
    };
    insta::assert_snapshot!(run_http(only(&["201", "300-302"])).await.end(), @"failed unexpected_status: the response has status 200 OK: expected 201, 300-302");
    insta::assert_snapshot!(run_http(only(&["201", "204"])).await.end(), @"exit code 0");
}

#[tokio::test]
async fn a_false_or_impossible_condition_fails_the_execution() {
    let server =
        Server::start([ok(r#"{"code": 5}"#), ok(r#"{"code": 5}"#), ok("text"), ok(r#"{"code": 5}"#)]).await;
    let with = |condition: &str| HttpRun { success_if: Some(condition.into()), ..get(&server.url) };
    insta::assert_snapshot!(run_http(with("body.code == 0")).await.end(), @"failed unexpected_response: the response does not satisfy `run.http.success_if`: `body.code == 0` is false");
    insta::assert_snapshot!(run_http(with("body.error == 0")).await.end(), @"failed unexpected_response: cannot evaluate `run.http.success_if` over the response 200 OK: `body.error == 0`: there is no field `error`");
    insta::assert_snapshot!(run_http(with("body.code == 0")).await.end(), @"failed unexpected_response: cannot evaluate `run.http.success_if` over the response 200 OK: `body.code == 0`: a string has no field `code`");
    insta::assert_snapshot!(run_http(with("body.code")).await.end(), @"failed unexpected_response: cannot evaluate `run.http.success_if` over the response 200 OK: `body.code`: expected a boolean");
}

#[tokio::test]
async fn variables_and_the_identity_are_sent() {
    let server = Server::start([ok("")]).await;
    let ran = run_http(HttpRun {
        headers: map(&[("X-Attempt", "${BELFRY_ATTEMPT}"), ("idempotency-key", "mine")]),
        ..post(
            format!("{}/${{BELFRY_JOB_ID}}?q=$${{x}}#part", server.url),
            r#"{"job": "${BELFRY_JOB_ID}", "t": "${{ x }}"}"#,
        )
    })
    .await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(stable(&server.requests()[0].replace('\r', "")), @r#"
    POST /job_1?q=${x} HTTP/1.1
    idempotency-key: mine
    belfry-job-id: job_1
    belfry-execution-id: exec_1
    belfry-attempt: 2
    belfry-fence: 7
    x-attempt: 2
    content-type: application/json
    accept: */*
    user-agent: belfry/0.1.0
    host: SERVER
    content-length: 33

    {"job": "job_1", "t": "${{ x }}"}
    "#);
    insta::assert_snapshot!(ran.output, @"
    > POST http://SERVER/job_1?...
    < 200 OK, 0 bytes in N ms
    ");
}

#[tokio::test]
async fn the_body_determines_its_type_unless_the_headers_do() {
    let server = Server::start([ok(""), ok(""), ok("")]).await;
    run_http(HttpRun { method: Some(HttpMethod::Put), ..post(&server.url, "[1]") }).await;
    run_http(post(&server.url, "a=1")).await;
    run_http(HttpRun { headers: map(&[("Content-Type", "text/csv")]), ..post(&server.url, "a,1") }).await;
    let content_types: Vec<_> = server
        .requests()
        .iter()
        .map(|request| {
            let types: Vec<_> = request.lines().filter(|line| line.starts_with("content-type: ")).collect();
            format!("{} {}", request.split(' ').next().unwrap(), types.join(" "))
        })
        .collect();
    insta::assert_snapshot!(content_types.join("\n"), @"
    PUT content-type: application/json
    POST content-type: text/plain; charset=utf-8
    POST content-type: text/csv
    ");
}

#[tokio::test]
async fn an_unknown_variable_is_found_before_a_request_is_sent() {
    let server = Server::start([]).await;
    insta::assert_snapshot!(run_http(get(format!("{}/${{HOME}}", server.url))).await.end(), @"start_failed unknown_variable: invalid `run.http.url`: `${HOME}` is not a variable of the execution: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`");
    insta::assert_snapshot!(run_http(post(&server.url, "${BELFRY_TYPO}")).await.end(), @"start_failed unknown_variable: invalid `run.http.body`: the execution has no variable `BELFRY_TYPO`: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`");
    let headers = map(&[("X-A", "${response.status}")]);
    insta::assert_snapshot!(run_http(HttpRun { headers, ..get(&server.url) }).await.end(), @"start_failed unknown_variable: invalid `run.http.headers.X-A`: `${response.status}` is available in `poll.url` only: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`");
    let poll = polling(Some("http://x/${BELFRY_TYPO}"), None);
    insta::assert_snapshot!(run_http(HttpRun { poll, ..get(&server.url) }).await.end(), @"start_failed unknown_variable: invalid `run.http.poll.url`: the execution has no variable `BELFRY_TYPO`: use a variable such as `${BELFRY_JOB_ID}`, or write `$${` for the text `${`");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_refused_connection_is_a_failed_start() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ran = run_http(post(format!("http://user:secret@{address}/x"), "hello")).await;
    insta::assert_snapshot!(ran.end(), @"start_failed connect_failed: cannot connect to `SERVER`: Connection refused (os error 111)");
    insta::assert_snapshot!(ran.output, @"> POST http://SERVER/x");
    insta::assert_snapshot!(ran.errors, @"belfry: cannot connect to `SERVER`: Connection refused (os error 111)");
}

#[tokio::test]
async fn a_server_without_tls_is_a_failed_start() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let end = run_http(get(url)).await.end();
    // A machine without root certificates has no TLS at all.
    assert!(
        end.starts_with("start_failed connect_failed") || end.starts_with("start_failed tls_unavailable"),
        "{end}"
    );
}

#[tokio::test]
async fn a_failed_connection_after_a_redirect_is_no_failed_start() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("location: http://{}/\r\n", listener.local_addr().unwrap());
    drop(listener);
    let server = Server::start([reply("307 Temporary Redirect", &location, "")]).await;
    insta::assert_snapshot!(run_http(post(&server.url, "hello")).await.end(), @"failed connect_failed: cannot connect to `SERVER`: Connection refused (os error 111)");
}

#[tokio::test]
async fn a_server_that_closes_the_connection_fails_the_request() {
    let server = Server::start([Reply::Close]).await;
    insta::assert_snapshot!(run_http(post(&server.url, "hello")).await.end(), @"failed request_failed: the request to `SERVER` failed: connection closed before message completed");
}

#[tokio::test]
async fn a_response_must_arrive_in_time() {
    let server = Server::start([Reply::Silence]).await;
    let request_timeout = Some(model::Duration::from_millis(200));
    let ran = run_http(HttpRun { request_timeout, ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"failed request_timeout: no complete response from `SERVER` within 200ms");
}

#[tokio::test]
async fn a_response_has_a_maximum_size() {
    let bytes = |count| Reply::Full("200 OK", String::new(), vec![b'x'; count]);
    let server = Server::start([bytes(sender::BODY_BYTES_MAX), bytes(sender::BODY_BYTES_MAX + 1)]).await;
    let ran = run_http(get(&server.url)).await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.output.trim_end().rsplit('\n').next().unwrap(), @"(4,128,768 more bytes are left out)");
    insta::assert_snapshot!(run_http(get(&server.url)).await.end(), @"failed response_too_large: the response of `SERVER` has more than 4194304 bytes");
}

#[tokio::test]
async fn an_overloaded_server_gets_the_request_again() {
    let server = Server::start([
        reply("503 Service Unavailable", "retry-after: 0\r\n", "busy"),
        reply("429 Too Many Requests", "retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", "busy"),
        ok("done"),
        reply("503 Service Unavailable", "", "busy"),
    ])
    .await;
    let ran = run_http(post(&server.url, "hello")).await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.output, @"
    > POST http://SERVER/
    < 503 Service Unavailable, 4 bytes in N ms
    busy
    > POST http://SERVER/
    < 429 Too Many Requests, 4 bytes in N ms
    (the same body)
    > POST http://SERVER/
    < 200 OK, 4 bytes in N ms
    done
    ");
    insta::assert_snapshot!(ran.errors, @"
    belfry: the server asks for a delay: sending the request again in 0s
    belfry: the server asks for a delay: sending the request again in 0s
    ");
    assert_eq!(server.targets(), ["POST /"; 3]);
    insta::assert_snapshot!(run_http(get(&server.url)).await.end(), @"failed unexpected_status: the response has status 503 Service Unavailable: expected 2xx");
}

#[tokio::test]
async fn an_overloaded_server_gets_the_request_a_limited_number_of_times() {
    let busy = || reply("503 Service Unavailable", "retry-after: 0\r\n", "");
    let server = Server::start(std::iter::repeat_with(busy).take(11)).await;
    insta::assert_snapshot!(run_http(get(&server.url)).await.end(), @"failed unexpected_status: the response has status 503 Service Unavailable: expected 2xx");
    assert_eq!(server.requests().len(), 11);
}

#[tokio::test]
async fn accepted_work_is_polled_at_its_location() {
    let server = Server::start([
        reply("202 Accepted", "location: status/7\r\n", ""),
        reply("202 Accepted", "", "pending"),
        reply("202 Accepted", "", "pending"),
        ok(r#"{"rows": 3}"#),
    ])
    .await;
    let ran = run_http(HttpRun {
        poll: polling(None, None),
        headers: map(&[("Authorization", "Bearer x")]),
        outputs: map(&[("rows", "body.rows")]),
        ..post(format!("{}/jobs/run", server.url), "{}")
    })
    .await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.output, @r#"
    > POST http://SERVER/jobs/run
    < 202 Accepted, 0 bytes in N ms
    > GET http://SERVER/jobs/status/7
    < 202 Accepted, 7 bytes in N ms
    pending
    > GET http://SERVER/jobs/status/7
    < 202 Accepted, 7 bytes in N ms
    (the same body)
    > GET http://SERVER/jobs/status/7
    < 200 OK, 11 bytes in N ms
    {"rows": 3}
    "#);
    assert_eq!(ran.outputs.as_deref(), Some(r#"{"rows":3}"#));
    let last = &server.requests()[3];
    assert!(
        last.contains("authorization: Bearer x\r\n") && last.contains("belfry-job-id: job_1\r\n"),
        "{last}"
    );
    assert!(!last.contains("content-type"), "{last}");
}

#[tokio::test]
async fn accepted_work_is_polled_at_a_url_with_values_of_the_response() {
    let server =
        Server::start([ok(r#"{"id": 42}"#), ok(r#"{"state": "running"}"#), ok(r#"{"state": "failed"}"#)])
            .await;
    let ran = run_http(HttpRun {
        poll: polling(
            Some(&format!("{}/${{BELFRY_JOB_ID}}/${{response.body.id}}", server.url)),
            Some(r#"body.state != "running""#),
        ),
        success_if: Some(r#"body.state == "done""#.into()),
        ..get(&server.url)
    })
    .await;
    insta::assert_snapshot!(ran.end(), @r#"failed unexpected_response: the response does not satisfy `run.http.success_if`: `body.state == "done"` is false"#);
    assert_eq!(server.targets(), ["GET /", "GET /job_1/42", "GET /job_1/42"]);
}

#[tokio::test]
async fn polling_needs_a_url() {
    let server = Server::start([
        reply("202 Accepted", "", ""),
        reply("202 Accepted", "", r#"{"id": null}"#),
        reply("202 Accepted", "", "{}"),
        reply("202 Accepted", "location: ftp://x\r\n", ""),
    ])
    .await;
    let with = |url| HttpRun { poll: polling(url, None), ..get(&server.url) };
    insta::assert_snapshot!(run_http(with(None)).await.end(), @"failed no_location: the response has no header `Location` to poll: set `run.http.poll.url`");
    insta::assert_snapshot!(run_http(with(Some("http://x/${response.body.id}"))).await.end(), @"failed poll_url_invalid: invalid `run.http.poll.url`: `${response.body.id}`: expected a string, a number or a boolean");
    insta::assert_snapshot!(run_http(with(Some("http://x/${response.body.id}"))).await.end(), @"failed poll_url_invalid: invalid `run.http.poll.url`: `${response.body.id}`: there is no field `id`");
    insta::assert_snapshot!(run_http(with(None)).await.end(), @"failed no_location: invalid header `Location` of the response: expected `http` or `https` but got `ftp`");
}

#[tokio::test]
async fn work_that_is_done_at_once_is_not_polled() {
    let server = Server::start([ok("{}")]).await;
    let ran = run_http(HttpRun { poll: polling(None, None), ..get(&server.url) }).await;
    assert_eq!(ran.end(), "exit code 0");
}

#[tokio::test]
async fn work_that_is_not_accepted_is_not_polled() {
    let server = Server::start([reply("400 Bad Request", "location: /x\r\n", "")]).await;
    let ran = run_http(HttpRun { poll: polling(None, None), ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"failed unexpected_status: the response has status 400 Bad Request: expected 2xx");
}

#[tokio::test]
async fn polling_tolerates_failed_requests() {
    let server = Server::start([
        reply("202 Accepted", "location: /status\r\n", ""),
        reply("502 Bad Gateway", "", ""),
        Reply::Close,
        ok("done"),
    ])
    .await;
    let ran = run_http(HttpRun { poll: polling(None, None), ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.errors, @"
    belfry: polling failed, trying again in 1ms: the response has status 502 Bad Gateway
    belfry: polling failed, trying again in 1ms: the request to `SERVER` failed: connection closed before message completed
    ");
}

#[tokio::test]
async fn polling_fails_after_many_failed_requests_in_a_row() {
    let broken = || reply("500 Internal Server Error", "", "");
    let accepted = reply("202 Accepted", "location: /status\r\n", "");
    let server = Server::start([accepted].into_iter().chain(std::iter::repeat_with(broken).take(10))).await;
    let ran = run_http(HttpRun { poll: polling(None, None), ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"failed poll_failed: polling failed 10 times in a row: the response has status 500 Internal Server Error");
    assert_eq!(server.requests().len(), 11);
}

#[tokio::test]
async fn a_link_local_address_is_refused() {
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]", "[fd00:ec2::254]"] {
        let ran = run_http(get(format!("http://{host}/latest/meta-data"))).await;
        assert!(ran.end().starts_with("start_failed address_not_allowed"), "{host}: {}", ran.end());
        assert_eq!(ran.output, "");
    }
    let to_metadata = |status| reply(status, "location: http://169.254.169.254/latest\r\n", "");
    let server = Server::start([to_metadata("302 Found"), to_metadata("202 Accepted")]).await;
    insta::assert_snapshot!(run_http(get(&server.url)).await.end(), @"failed address_not_allowed: cannot send a request to `169.254.169.254` (169.254.169.254): link-local addresses and the metadata services of clouds are refused");
    let ran = run_http(HttpRun { poll: polling(None, None), ..get(&server.url) }).await;
    insta::assert_snapshot!(ran.end(), @"failed address_not_allowed: cannot send a request to `169.254.169.254` (169.254.169.254): link-local addresses and the metadata services of clouds are refused");
}

#[tokio::test]
async fn redirects_are_followed() {
    let server = Server::start([
        reply("307 Temporary Redirect", "location: /a\r\n", "moved"),
        reply("303 See Other", "location: b?c=1\r\n", "moved"),
        ok("here"),
    ])
    .await;
    let ran = run_http(post(&server.url, "hello")).await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.output, @"
    > POST http://SERVER/
    < 307 Temporary Redirect, 5 bytes in N ms
    > POST http://SERVER/a
    < 303 See Other, 5 bytes in N ms
    > GET http://SERVER/b?...
    < 200 OK, 4 bytes in N ms
    here
    ");
    let requests = server.requests();
    assert!(requests[1].ends_with("\r\n\r\nhello") && requests[2].ends_with("\r\n\r\n"), "{requests:?}");
}

#[tokio::test]
async fn redirects_are_limited() {
    let server =
        Server::start(std::iter::repeat_with(|| reply("302 Found", "location: /\r\n", "")).take(11)).await;
    insta::assert_snapshot!(run_http(get(&server.url)).await.end(), @"failed redirect_failed: there are more than 10 redirects");
}

#[tokio::test]
async fn credentials_stay_at_their_origin() {
    let other = Server::start([ok(""), ok("")]).await;
    let elsewhere = format!("location: {}/x\r\n", other.url);
    let server = Server::start([
        reply("302 Found", "location: /same\r\n", ""),
        reply("302 Found", &elsewhere, ""),
        reply("202 Accepted", &elsewhere, ""),
    ])
    .await;
    let url = server.url.replace("http://", "http://user:secret@");
    let headers = map(&[("Cookie", "a=1"), ("X-Other", "kept")]);
    let ran = run_http(HttpRun { headers: headers.clone(), ..get(&url) }).await;
    insta::assert_snapshot!(ran.output, @"
    > GET http://SERVER/
    < 302 Found, 0 bytes in N ms
    > GET http://SERVER/same
    < 302 Found, 0 bytes in N ms
    > GET http://SERVER/x
    < 200 OK, 0 bytes in N ms
    ");
    let ran_poll = run_http(HttpRun { headers, poll: polling(None, None), ..get(&url) }).await;
    assert_eq!([ran.end, ran_poll.end], [End::Code(0), End::Code(0)]);
    for request in server.requests() {
        assert!(request.contains("authorization: Basic ") && request.contains("cookie: a=1"), "{request}");
    }
    for request in other.requests() {
        assert!(request.contains("x-other: kept"), "{request}");
        assert!(!request.contains("authorization") && !request.contains("cookie"), "{request}");
    }
}

#[tokio::test]
async fn a_stop_signal_cancels_the_request() {
    let server = Server::start([Reply::Silence]).await;
    let arrived = Arc::clone(&server.arrived);
    let stop = async move {
        arrived.notified().await;
        15
    };
    let ran = run_http_until(stop, get(&server.url)).await;
    assert_eq!(ran.end, End::Code(143));
    insta::assert_snapshot!(ran.errors, @"belfry: signal 15 stopped the request");
}

/// Tells when a message is logged.
struct Observed(Arc<Notify>);

impl io::Write for Observed {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.notify_one();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_stop_signal_ends_the_wait_for_an_overloaded_server() {
    let server = Server::start([reply("503 Service Unavailable", "retry-after: 200\r\n", "")]).await;
    let logged = Arc::new(Notify::new());
    let (mut output, mut errors) = (Vec::new(), Observed(Arc::clone(&logged)));
    let stop = async {
        logged.notified().await;
        2
    };
    let end = run_until(stop, &get(&server.url), &|_| None, &mut Log::new(&mut output, &mut errors)).await;
    assert_eq!(end, End::Code(130));
}

#[tokio::test]
async fn a_body_that_is_not_text_is_not_logged() {
    let server = Server::start([Reply::Full("200 OK", String::new(), vec![0xff, 0xfe, 0x00])]).await;
    let ran = run_http(get(&server.url)).await;
    insta::assert_snapshot!(ran.end(), @"exit code 0");
    insta::assert_snapshot!(ran.output, @"
    > GET http://SERVER/
    < 200 OK, 3 bytes in N ms
    (3 bytes that are not UTF-8)
    ");
}

#[tokio::test]
async fn a_name_is_resolved() {
    let server = Server::start([ok("")]).await;
    let ran = run_http(get(server.url.replace("127.0.0.1", "localhost"))).await;
    insta::assert_snapshot!(ran.output, @"
    > GET http://NAME/
    < 200 OK, 0 bytes in N ms
    ");
}
