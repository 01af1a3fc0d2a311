//! Dependency rules: between crates, read from `cargo tree`, and between the modules of a crate, read from
//! their source.
//!
//! - Cores and `model` depend on no runtime, socket, file or database ([`WORLD`]), and cores on no wire
//!   format ([`WIRES`]).
//! - Each crate depends on the listed crates of the project and on no others; a new dependency is added to
//!   the list on purpose.
//! - Modules that are siblings form no cycle, except for the accepted ones in [`KNOWN_CYCLES`].
//!
//! `cargo tree` runs offline, so these tests need no network.

use std::collections::BTreeSet;
use std::process::Command;

use harness::modules::{Cycle, Modules};

/// Crates that run tasks, open sockets or files, or access databases. A `*` at the end matches any suffix.
const WORLD: &[&str] = &[
    "async-std",
    "axum*",
    "hyper*",
    "libsqlite3-sys",
    "mio",
    "nix",
    "object_store",
    "openraft",
    "polling",
    "postgres*",
    "prost*",
    "reqwest",
    "rusqlite",
    "rustix",
    "rustls*",
    "smol*",
    "socket2",
    "sqlx*",
    "tempfile",
    "tokio*",
    "tonic*",
    "tower*",
    "ureq",
];

/// Crates for wire formats: OpenAPI and protobuf.
const WIRES: &[&str] = &["prost*", "tonic*", "utoipa*"];

/// Returns all direct and indirect dependencies of `package`.
fn dependencies(package: &str) -> BTreeSet<String> {
    tree(package, &[])
}

/// Returns the direct dependencies of `package`.
fn direct_dependencies(package: &str) -> BTreeSet<String> {
    tree(package, &["--depth", "1"])
}

fn tree(package: &str, arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package])
        .args(arguments)
        .current_dir(harness::repository())
        .output()
        .expect("cannot start cargo");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|l| l.split(' ').next()).map(str::to_owned).filter(|n| n != package).collect()
}

fn among<'a>(names: &'a BTreeSet<String>, patterns: &[&str]) -> Vec<&'a str> {
    let is = |name: &str, pattern: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    };
    names.iter().map(String::as_str).filter(|n| patterns.iter().any(|p| is(n, p))).collect()
}

fn ours(names: &BTreeSet<String>) -> Vec<&str> {
    names.iter().filter_map(|n| n.strip_prefix("belfry-")).collect()
}

#[test]
fn model_cores_and_forecast_depend_on_no_runtime_socket_or_database() {
    for package in [
        "belfry-model",
        "belfry-timetable",
        "belfry-engine",
        "belfry-leader",
        "belfry-supervisor",
        "belfry-forecast",
        "belfry-access",
        "belfry-audit",
    ] {
        assert_eq!(among(&dependencies(package), WORLD), [""; 0], "{package}");
    }
    // The server has such dependencies, which shows that the check works.
    let server = dependencies("belfry-server");
    let found = among(&server, WORLD);
    for expected in ["axum", "tokio", "rusqlite", "tonic"] {
        assert!(found.contains(&expected), "{expected} is missing in {found:?}");
    }
}

/// The cores decide; `model` and `proto` define the wire formats, and the shells use them.
#[test]
fn the_cores_depend_on_no_wire_format() {
    for package in ["belfry-access", "belfry-audit", "belfry-engine", "belfry-leader", "belfry-supervisor"] {
        assert_eq!(among(&direct_dependencies(package), WIRES), [""; 0], "{package}");
    }
    assert_eq!(among(&direct_dependencies("belfry-model"), WIRES), ["utoipa"]);
    assert_eq!(among(&direct_dependencies("belfry-proto"), WIRES), ["prost", "tonic", "tonic-prost"]);
}

#[test]
fn dependencies_between_crates_point_inwards() {
    for (package, knows) in [
        ("belfry-model", &[][..]),
        ("belfry-timetable", &["model"]),
        ("belfry-access", &["model"]),
        ("belfry-alerts", &["model", "timetable"]),
        ("belfry-audit", &["model"]),
        ("belfry-mutation", &[]),
        ("belfry-engine", &["model", "mutation", "timetable"]),
        ("belfry-leader", &["engine", "model", "mutation", "timetable"]),
        ("belfry-supervisor", &["model", "mutation"]),
        ("belfry-forecast", &["engine", "model", "mutation", "timetable"]),
        ("belfry-raft", &["model", "mutation", "store"]),
        ("belfry-proto", &[]),
        ("belfry-client", &["model"]),
        ("belfry-crashpoint", &[]),
        ("belfry-shim", &["model"]),
        ("belfry-sandbox", &["model"]),
        ("belfry-runtimes", &["model", "sandbox", "shim"]),
        ("belfry-worker", &["crashpoint", "model", "mutation", "proto", "shim", "supervisor"]),
        (
            "belfry-server",
            &[
                "access",
                "alerts",
                "audit",
                "crashpoint",
                "engine",
                "leader",
                "model",
                "mutation",
                "proto",
                "raft",
                "store",
                "timetable",
            ],
        ),
    ] {
        assert_eq!(ours(&dependencies(package)), knows, "{package}");
    }
    let store = dependencies("belfry-store");
    assert!(ours(&store).iter().all(|c| ["engine", "model", "mutation"].contains(c)), "{store:?}");
}

/// An upgrade of openraft then changes one crate.
#[test]
fn only_the_raft_crate_knows_openraft() {
    assert!(direct_dependencies("belfry-raft").contains("openraft"));
    for package in ["belfry", "belfry-server", "belfry-store", "belfry-sim"] {
        assert!(!direct_dependencies(package).contains("openraft"), "{package}");
    }
}

#[test]
fn there_is_one_tls_provider_and_no_openssl() {
    let binary = dependencies("belfry");
    for unwanted in ["aws-lc-rs", "aws-lc-sys", "openssl", "openssl-sys", "native-tls"] {
        assert!(
            !binary.contains(unwanted),
            "unexpected dependency {unwanted}: see `cargo tree -i {unwanted}`"
        );
    }
    assert!(binary.contains("ring"));
}

/// Accepted cycles of modules, with the reason. Do not extend this list.
const KNOWN_CYCLES: &[(&str, &str, &[&str], &str)] = &[
    (
        "belfry",
        "crate",
        &["connect", "contexts", "failure", "output", "settings"],
        "errors are printed by the commands that cause them",
    ),
    ("belfry", "crate::commands", &["apply", "schedules", "workflows"], "`apply` accepts every kind of file"),
    (
        "belfry",
        "crate::output",
        &["objects", "runs", "schedules", "workflows"],
        "each prints parts of the others",
    ),
    (
        "engine",
        "crate::workflows",
        &["plan", "producers"],
        "a plan knows which steps create the elements of others",
    ),
    (
        "leader",
        "crate",
        &["acquire", "lead", "leader", "load", "standby"],
        "each phase starts the next one, and all share the state that outlives phases",
    ),
    (
        "sim",
        "crate::world",
        &[
            "agent",
            "calls",
            "client",
            "fuse",
            "health",
            "launcher",
            "members",
            "server",
            "services",
            "sessions",
            "supervisor",
            "task",
        ],
        "the parts of one world send each other messages",
    ),
    ("store", "crate", &["copy", "postgres", "sqlite"], "a copy reads one store and writes another"),
    ("store", "crate::postgres", &["address", "connection"], "an address is tried by connecting"),
    (
        "store",
        "crate::sqlite",
        &["commit", "housekeeping", "leases", "operation", "quarantine", "readers", "statistics", "syncer"],
        "the writer thread knows each operation, and each operation is sent to that thread",
    ),
    (
        "store",
        "crate::sqlite",
        &["lists", "views"],
        "the replicas of a service are read like a list, and lists of runs use the cache of definitions",
    ),
    ("store", "crate::sqlite", &["file", "wal_checkpoint"], "a file is moved while it is opened"),
    (
        "supervisor",
        "crate",
        &["event", "execution", "journal", "launch", "report"],
        "an execution is written to the journal, and read back from it",
    ),
    (
        "timetable",
        "crate",
        &["calendar_days", "cron", "days", "roll", "rule"],
        "a set of days belongs to a rule, a cron expression or a calendar",
    ),
    ("worker", "crate::agent", &["machine", "supervisor"], "a machine starts its supervisor"),
    ("worker", "crate::supervisor", &["checkpoint", "convert", "task"], "parts of one task"),
];

#[test]
fn sibling_modules_form_no_new_cycle() {
    let crates = std::fs::read_dir(harness::repository().join("crates")).unwrap();
    let mut names: Vec<_> = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut wrong = Vec::new();
    for name in &names {
        let found = Modules::read(&harness::repository().join("crates").join(name).join("src")).cycles();
        let known: Vec<_> = KNOWN_CYCLES.iter().filter(|known| known.0 == name).collect();
        let is = |circle: &Cycle, within: &str, modules: &[&str]| {
            circle.within == within && circle.modules.iter().map(String::as_str).eq(modules.iter().copied())
        };
        for circle in &found {
            if !known.iter().any(|known| is(circle, known.1, known.2)) {
                let arrows: Vec<_> = circle.arrows.iter().map(String::as_str).collect();
                wrong.push(format!(
                    "{name}: {} in {} form a cycle: move their common code into a separate module\n    {}",
                    circle.modules.join(", "),
                    circle.within,
                    arrows.join("\n    ")
                ));
            }
        }
        let gone = known.iter().filter(|known| !found.iter().any(|circle| is(circle, known.1, known.2)));
        wrong.extend(
            gone.map(|known| format!("{name}: {:?} is no longer a cycle: remove it from the list", known.2)),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
