//! Generates Rust code from the `.proto` file, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["belfry/worker/v1/worker.proto"], ["proto"])?;
    // Boxed to save memory: a worker keeps the assignment of each of its executions, and most jobs belong to no step.
    let configured = tonic_prost_build::configure().bytes(".").boxed(".belfry.worker.v1.Assignment.step");
    let configured = configured.skip_debug([".belfry.worker.v1.SecretValue"]);
    configured.compile_fds(files)?;
    Ok(())
}
