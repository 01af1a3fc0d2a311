//! Builds the gate: a static program without a C library, which runs in every container.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=gate/gate.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let gate = PathBuf::from(variable("OUT_DIR")).join("gate");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["gate/gate.rs", "--edition", "2024", "--crate-name", "gate", "--crate-type", "bin"]);
    rustc.args(["--target", &variable("TARGET"), "-o"]).arg(&gate);
    for option in [
        "opt-level=s",
        "panic=abort",
        "relocation-model=static",
        "target-feature=+crt-static",
        "strip=symbols",
    ] {
        rustc.args(["-C", option]);
    }
    for option in ["-nostartfiles", "-nostdlib", "-static"] {
        rustc.args(["-C", &format!("link-arg={option}")]);
    }
    let status = rustc.status().expect("cannot run rustc");
    assert!(status.success(), "cannot build the gate of containers");
}
