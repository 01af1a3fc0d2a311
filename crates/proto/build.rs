//! Compiles the protocol without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["belfry/worker/v1/worker.proto"], ["proto"])?;
    // Most jobs belong to no step, and each execution that a worker has keeps its assignment.
    let configured = tonic_prost_build::configure().bytes(".").boxed(".belfry.worker.v1.Assignment.step");
    configured.compile_fds(files)?;
    Ok(())
}
