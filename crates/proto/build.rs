//! Compiles the protocol without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["belfry/worker/v1/worker.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(files)?;
    Ok(())
}
