//! The gRPC health check of `grpc.health.v1.Health`:
//! <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>.

use std::net::Ipv4Addr;

use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

const METHOD: &str = "/grpc.health.v1.Health/Check";

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct HealthCheckResponse {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum ServingStatus {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
    ServiceUnknown = 3,
}

/// Calls the health service, without TLS. `service` is empty for the server as a whole.
///
/// # Errors
/// The reason why the service is not serving.
pub(super) async fn check(port: u16, service: &str) -> Result<(), String> {
    let endpoint = Endpoint::from_shared(format!("http://{}:{port}", Ipv4Addr::LOCALHOST));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    let channel = endpoint.connect().await;
    let channel = channel
        .map_err(|error| format!("cannot connect to port {port}: {}", model::error_chain::Chain(&error)))?;
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| format!("gRPC connection lost: {error}"))?;
    let request = Request::new(HealthCheckRequest { service: service.to_owned() });
    let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
    let answer = client.unary(request, PathAndQuery::from_static(METHOD), codec).await;
    match answer.map(|answer| answer.into_inner().status()) {
        Ok(ServingStatus::Serving) => Ok(()),
        Ok(status) => Err(format!("gRPC health status {}", name(status))),
        Err(status) if status.code() == Code::Unimplemented => {
            Err("the server does not implement `grpc.health.v1.Health`".into())
        }
        Err(status) => Err(format!("gRPC error {:?}: {}", status.code(), status.message())),
    }
}

fn name(status: ServingStatus) -> &'static str {
    match status {
        ServingStatus::Unknown => "UNKNOWN",
        ServingStatus::Serving => "SERVING",
        ServingStatus::NotServing => "NOT_SERVING",
        ServingStatus::ServiceUnknown => "SERVICE_UNKNOWN",
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full, StreamBody};
    use hyper::body::{Frame, Incoming};
    use hyper::header::HeaderMap;
    use hyper::{Request, Response};
    use prost::Message as _;

    use super::*;

    type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

    /// Answers a call like a gRPC server: the status of the service `up` is serving, and the others are unknown.
    async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        assert_eq!(request.uri().path(), METHOD);
        let message = request.into_body().collect().await.unwrap().to_bytes();
        let service = HealthCheckRequest::decode(&message[5..]).unwrap().service;
        let response = Response::builder().header("content-type", "application/grpc");
        if service == "none" {
            let response = response.header("grpc-status", "5").header("grpc-message", "no such service");
            return Ok(response.body(Full::default().boxed()).unwrap());
        }
        let status = if service == "up" { ServingStatus::Serving } else { ServingStatus::NotServing };
        let body = HealthCheckResponse { status: status.into() }.encode_to_vec();
        let mut frame = vec![0, 0, 0, 0, u8::try_from(body.len()).unwrap()];
        frame.extend(body);
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let frames = [Frame::data(Bytes::from(frame)), Frame::trailers(trailers)].map(Ok);
        Ok(response.body(StreamBody::new(tokio_stream::iter(frames)).boxed()).unwrap())
    }

    async fn serve() -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let io = hyper_util::rt::TokioIo::new(stream);
                let service = hyper::service::service_fn(answer);
                let builder =
                    hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
                tokio::spawn(async move { builder.serve_connection(io, service).await.map_err(drop) });
            }
        });
        address
    }

    #[tokio::test]
    async fn a_grpc_check_succeeds_only_while_the_service_is_serving() {
        let port = serve().await.port();
        assert_eq!(check(port, "up").await, Ok(()));
        assert_eq!(check(port, "").await, Err("gRPC health status NOT_SERVING".into()));
        assert_eq!(check(port, "none").await, Err("gRPC error NotFound: no such service".into()));
    }
}
