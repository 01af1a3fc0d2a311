//! What servers and workers say to each other.
//!
//! The messages are generated from `proto/belfry/worker/v1/worker.proto`, whose comments are the
//! contract: three lanes (session, beat, logs), all opened by the worker. [`logframe`] is the
//! format of an execution's log, the same on the wire, in the worker's spool and in the server's
//! object store, so that nobody converts it.

pub mod logframe;

/// Generated messages, and the tonic client and server of the `Worker` service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::large_enum_variant,
    reason = "generated; the .proto file documents it"
)]
pub mod v1 {
    tonic::include_proto!("belfry.worker.v1");
}
