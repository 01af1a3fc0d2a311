//! Location of the binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Returns the root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests' crate is in the repository")
}

/// Returns the path of the `belfry` binary: the value of `BELFRY_BIN`, or the binary beside this test, built from the
/// current sources.
///
/// # Panics
/// If the binary cannot be built.
pub fn belfry() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("BELFRY_BIN").map_or_else(beside_this_test, PathBuf::from))
}

/// Returns `target/PROFILE/belfry`; this program is `target/PROFILE/belfry-bench`, or a test in
/// `target/PROFILE/deps`. Builds the binary first if it is missing or older than a source file, so that no old code
/// is tested.
fn beside_this_test() -> PathBuf {
    let this = std::env::current_exe().expect("a program knows its own path");
    let folder = this.parent().expect("a program is in a folder");
    let folder =
        if folder.ends_with("deps") { folder.parent().expect("`deps` is in a folder") } else { folder };
    let path = folder.join("belfry");
    let built = path.metadata().and_then(|m| m.modified()).ok();
    if built.is_none_or(|built| built < newest_source()) {
        build(folder);
    }
    assert!(path.exists(), "`cargo build -p belfry` did not create {}", path.display());
    path
}

fn build(folder: &Path) {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "belfry"]).current_dir(repository());
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cannot start cargo");
    assert!(status.success(), "`cargo build -p belfry` failed: {status}");
}

fn newest_source() -> SystemTime {
    fn walk(dir: &Path, newest: &mut SystemTime) {
        for entry in dir.read_dir().into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && entry.file_name() != "tests" {
                walk(&entry.path(), newest);
            } else if let Ok(modified) = entry.metadata().and_then(|m| m.modified())
                && entry.path().extension().is_some_and(|e| e == "rs" || e == "proto" || e == "toml")
            {
                *newest = modified.max(*newest);
            }
        }
    }
    let mut newest = SystemTime::UNIX_EPOCH;
    walk(&repository().join("crates"), &mut newest);
    newest
}
