//! HTTP/1.1 server for the requests of a task over its socket.
//!
//! ```text
//! PUT  /checkpoint            data            ─> 200 {"version":3}
//! GET  /checkpoint                            ─> 200 data · 404
//! POST /elements?batch=NAME   list            ─> 201 added · 200 already added
//! GET  /services/NAME/endpoints?wait=30       ─> 200 {"items":[…]} · 304 not modified (with If-None-Match)
//! ```
//!
//! An error response is a problem document with `code`, `detail` and `hint`, as in the REST API.

use std::convert::Infallible;
use std::os::unix::net::UnixStream;

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use model::limits::CHECKPOINT_BYTES_MAX;
use proto::v1::SaveCheckpointRequest;
use serde_json::json;

use super::response::{ARRIVAL_MAX, Answer, BodyBound, Refusal, body, header, json_response, refused};
use super::{ANSWER_MAX, Caller, Upstream, elements, endpoints};

/// Maximum size of the head of a request in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

const CHECKPOINT_BOUND: BodyBound = BodyBound {
    bytes: CHECKPOINT_BYTES_MAX,
    what: "the checkpoint",
    hint: "store large data as an artifact and save its name",
};

/// Serves one connection, which carries one request. Without a place (`has_slot`) the request is refused as `busy`.
pub(super) async fn serve(connection: UnixStream, caller: Caller, upstream: Upstream, has_slot: bool) {
    let stream = connection.set_nonblocking(true).and_then(|()| tokio::net::UnixStream::from_std(connection));
    let stream = match stream {
        Ok(stream) => stream,
        Err(error) => {
            let execution_id = &*caller.execution_id;
            return tracing::warn!(execution_id, %error, "cannot answer a call of a task");
        }
    };
    let service = service_fn(|request| {
        let (caller, upstream) = (caller.clone(), upstream.clone());
        async move {
            let answer = if has_slot { route(request, &caller, &upstream).await } else { Err(busy()) };
            Ok::<_, Infallible>(answer.unwrap_or_else(Refusal::into_response))
        }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(ARRIVAL_MAX);
    let serving = http.serve_connection(TokioIo::new(stream), service);
    // Also disconnects a client that reads its response too slowly.
    match tokio::time::timeout(ARRIVAL_MAX * 3 + ANSWER_MAX, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(execution_id = &*caller.execution_id, %error, "call interrupted"),
        Err(_) => tracing::debug!(execution_id = &*caller.execution_id, "call timed out"),
    }
}

async fn route(request: Request<Incoming>, caller: &Caller, upstream: &Upstream) -> Answer {
    if let Some(service) = endpoints::service_in(request.uri().path()) {
        return match *request.method() {
            Method::GET | Method::HEAD => endpoints::get(&request, service, caller, upstream).await,
            ref method => Err(Refusal::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "method_not_allowed",
                format!("{} does not support {method}", request.uri().path()),
                "use GET to read the endpoints of a service",
            )),
        };
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/checkpoint") => get_checkpoint(caller, upstream).await,
        (&Method::PUT, "/checkpoint") => put_checkpoint(request, caller, upstream).await,
        (&Method::POST, "/elements") => elements::post(request, caller, upstream).await,
        (method, path @ ("/checkpoint" | "/elements")) => Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            format!("{path} does not support {method}"),
            match path {
                "/checkpoint" => "use GET to read the last checkpoint, or PUT to save a checkpoint",
                _ => "use POST to add elements",
            },
        )),
        (_, path) => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("{path} does not exist"),
            "use /checkpoint, /elements or /services/NAME/endpoints",
        )),
    }
}

async fn get_checkpoint(caller: &Caller, upstream: &Upstream) -> Answer {
    let found = upstream.last(caller).await.map_err(|status| refused(&status))?;
    let Some(found) = found else {
        return Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "checkpoint_not_found",
            "the job has no checkpoint".into(),
            "start from the beginning",
        ));
    };
    let mut response = Response::new(Full::new(found.data));
    let headers = response.headers_mut();
    let content_type = HeaderValue::try_from(found.content_type);
    headers.insert(CONTENT_TYPE, content_type.unwrap_or(HeaderValue::from_static(model::checkpoint::BYTES)));
    headers.extend(HeaderValue::try_from(format!("\"{}\"", found.version)).map(|tag| (ETAG, tag)));
    Ok(response)
}

async fn put_checkpoint(request: Request<Incoming>, caller: &Caller, upstream: &Upstream) -> Answer {
    let expected_version = expected_version(request.headers())?;
    let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::to_str).transpose();
    let content_type = content_type.map_err(|_| header(&CONTENT_TYPE, "a media type"))?.unwrap_or_default();
    let content_type = content_type.to_owned();
    let data = body(request.into_body(), CHECKPOINT_BOUND).await?;
    let request = SaveCheckpointRequest {
        execution_id: caller.execution_id.to_string(),
        fence: caller.fence,
        data,
        content_type,
        expected_version,
    };
    let version = upstream.put(request).await.map_err(|status| refused(&status))?;
    Ok(json_response(StatusCode::OK, &json!({ "version": version })))
}

/// Returns the expected current version: `If-Match: "3"`, or `If-None-Match: *` for no checkpoint.
fn expected_version(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    if let Some(value) = headers.get(IF_NONE_MATCH) {
        return match value.as_bytes() {
            b"*" => Ok(Some(0)),
            _ => Err(header(&IF_NONE_MATCH, "`*`")),
        };
    }
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let version =
        value.to_str().ok().map(|text| text.trim().trim_matches('"')).and_then(|text| text.parse().ok());
    version.map(Some).ok_or_else(|| header(&IF_MATCH, "a version such as `\"3\"`"))
}

fn busy() -> Refusal {
    Refusal::new(
        StatusCode::TOO_MANY_REQUESTS,
        "busy",
        "the task has too many concurrent requests".into(),
        "wait until earlier requests have finished",
    )
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    #[test]
    fn a_precondition_names_a_version_or_none() {
        let expected = |name: HeaderName, value: &str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::try_from(value).unwrap())]);
            expected_version(&headers).map_err(|refusal| refusal.detail)
        };
        assert_eq!(expected_version(&HeaderMap::new()), Ok(None));
        assert_eq!(expected(IF_MATCH, "\"3\""), Ok(Some(3)));
        assert_eq!(expected(IF_NONE_MATCH, "*"), Ok(Some(0)));
        let refused = "invalid header `if-match`: expected a version such as `\"3\"`";
        assert_eq!(expected(IF_MATCH, "\"x\""), Err(refused.to_owned()));
        assert!(expected(IF_NONE_MATCH, "\"3\"").is_err());
    }
}
