//! Protocol between workers and servers, and the log format.
//!
//! The gRPC messages are generated from `proto/belfry/worker/v1/worker.proto`. The comments of that file are the
//! contract. A worker opens three streams: session, heartbeats and logs. [`logframe`] is the format of the log of an
//! execution. It is the same on the wire, in the spool of the worker and in the object store of the server, so no
//! component converts it.

pub mod logframe;

/// Generated messages, and the tonic client and server of the `Worker` service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::large_enum_variant,
    reason = "generated; documented in the .proto file"
)]
pub mod v1 {
    tonic::include_proto!("belfry.worker.v1");

    impl std::fmt::Debug for SecretValue {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "SecretValue({}/{}, version {})", self.secret, self.key, self.version)
        }
    }
}
