//! Builds again when the dashboard was built again: a release binary has it inside.

use std::path::Path;

fn main() {
    let dist = Path::new("../../web/dist");
    // A path that is not there would count as changed each time; its parent changes when it comes.
    let watched = if dist.exists() { dist } else { Path::new("../../web") };
    println!("cargo::rerun-if-changed={}", watched.display());
}
