//! Which way the arrows point between crates, read from `cargo tree`, and between the modules of a crate, read from
//! their source.

use std::collections::BTreeSet;
use std::process::Command;

use harness::modules::{Circle, Modules};

/// Crates that run tasks, open sockets or files of their own, or speak to databases. A name that
/// ends in `*` stands for all that begin so.
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

/// What describes the wires: OpenAPI and protobuf.
const WIRES: &[&str] = &["prost*", "tonic*", "utoipa*"];

/// The names of all crates that `package` is built from.
fn dependencies(package: &str) -> BTreeSet<String> {
    tree(package, &[])
}

/// The names of the crates that `package` itself names.
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
        .expect("cargo can be started");
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
fn what_is_said_decided_and_foretold_depends_on_no_runtime_socket_or_database() {
    for package in [
        "belfry-model",
        "belfry-timetable",
        "belfry-engine",
        "belfry-leader",
        "belfry-supervisor",
        "belfry-forecast",
    ] {
        assert_eq!(among(&dependencies(package), WORLD), [""; 0], "{package}");
    }
    // The list means something: the server has plenty of them.
    let server = dependencies("belfry-server");
    let found = among(&server, WORLD);
    for expected in ["axum", "tokio", "rusqlite", "tonic"] {
        assert!(found.contains(&expected), "{expected} is not found in {found:?}");
    }
}

/// The cores decide; how that is written for others is said by `model` and `proto`, and done by the shells.
#[test]
fn the_cores_know_no_wire() {
    for package in ["belfry-engine", "belfry-leader", "belfry-supervisor"] {
        assert_eq!(among(&direct_dependencies(package), WIRES), [""; 0], "{package}");
    }
    assert_eq!(among(&direct_dependencies("belfry-model"), WIRES), ["utoipa"]);
    assert_eq!(among(&direct_dependencies("belfry-proto"), WIRES), ["prost", "tonic", "tonic-prost"]);
}

#[test]
fn arrows_between_our_crates_point_inwards() {
    for (package, knows) in [
        ("belfry-model", &[][..]),
        ("belfry-timetable", &["model"]),
        ("belfry-mutation", &[]),
        ("belfry-engine", &["model", "mutation", "timetable"]),
        ("belfry-leader", &["engine", "model", "mutation", "timetable"]),
        ("belfry-supervisor", &["model", "mutation"]),
        ("belfry-forecast", &["engine", "model", "mutation", "timetable"]),
        ("belfry-proto", &[]),
        ("belfry-client", &["model"]),
        ("belfry-crashpoint", &[]),
        ("belfry-worker", &["crashpoint", "model", "mutation", "proto", "supervisor"]),
        (
            "belfry-server",
            &["crashpoint", "engine", "leader", "model", "mutation", "proto", "store", "timetable"],
        ),
    ] {
        assert_eq!(ours(&dependencies(package)), knows, "{package}");
    }
    let store = dependencies("belfry-store");
    assert!(ours(&store).iter().all(|c| ["engine", "model", "mutation"].contains(c)), "{store:?}");
}

#[test]
fn there_is_one_tls_provider_and_no_openssl() {
    let binary = dependencies("belfry");
    for unwanted in ["aws-lc-rs", "aws-lc-sys", "openssl", "openssl-sys", "native-tls"] {
        assert!(!binary.contains(unwanted), "{unwanted} came in: see `cargo tree -i {unwanted}`");
    }
    assert!(binary.contains("ring"));
}

/// Circles of modules that stand, with the reason. Make the list shorter.
const KNOWN_CIRCLES: &[(&str, &str, &[&str], &str)] = &[
    (
        "belfry",
        "crate",
        &["connect", "failure", "output", "settings"],
        "errors are printed by what they are about",
    ),
    ("belfry", "crate::commands", &["apply", "schedules", "workflows"], "`apply` takes every kind of file"),
    (
        "belfry",
        "crate::output",
        &["objects", "runs", "schedules", "workflows"],
        "each prints parts of the others",
    ),
    (
        "engine",
        "crate",
        &["digest", "engine", "job", "placement", "queue", "reconcile", "schedule", "worker", "workflow"],
        "all are `impl Engine`, over fields that all of them see",
    ),
    ("engine", "crate::schedule", &["decide", "fire", "ledger", "overlap"], "one firing, in four steps"),
    ("engine", "crate::workflow", &["added", "elements", "files", "scope"], "the names that a step can use"),
    (
        "engine",
        "crate::workflow",
        &["plan", "producers"],
        "a plan knows which steps make the elements of others",
    ),
    (
        "leader",
        "crate",
        &["acquire", "lead", "leader", "load", "standby"],
        "each phase begins the next one, and all share what outlasts phases",
    ),
    (
        "sim",
        "crate::world",
        &[
            "agent",
            "calls",
            "client",
            "fuse",
            "launcher",
            "members",
            "server",
            "sessions",
            "supervisor",
            "task",
        ],
        "the parts of one world send each other messages",
    ),
    ("store", "crate", &["copy", "postgres", "sqlite"], "a copy reads one store and writes the other"),
    ("store", "crate::postgres", &["address", "connection"], "an address is tried by connecting"),
    (
        "store",
        "crate::sqlite",
        &[
            "commit",
            "housekeeping",
            "leases",
            "load",
            "members",
            "operation",
            "quarantine",
            "readers",
            "rows",
            "syncer",
            "views",
        ],
        "the thread that writes knows each operation, and each operation is sent to that thread",
    ),
    ("store", "crate::sqlite", &["file", "mover"], "a file is moved while it is opened"),
    (
        "supervisor",
        "crate",
        &["event", "execution", "journal", "launch", "report"],
        "an execution is journalled, and read again from its journal",
    ),
    (
        "timetable",
        "crate",
        &["calendar_days", "cron", "days", "roll", "rule"],
        "a set of days is one of a rule, of cron, or of a calendar",
    ),
    ("worker", "crate::agent", &["machine", "supervisor"], "a machine starts its supervisor"),
    ("worker", "crate::agent::tasks", &["elements", "http"], "one request has a file of its own"),
    ("worker", "crate::supervisor", &["checkpoint", "convert", "task"], "parts of one task"),
];

#[test]
fn modules_beside_each_other_form_no_new_circle() {
    let crates = std::fs::read_dir(harness::repository().join("crates")).unwrap();
    let mut names: Vec<_> = crates.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut wrong = Vec::new();
    for name in &names {
        let found = Modules::read(&harness::repository().join("crates").join(name).join("src")).circles();
        let known: Vec<_> = KNOWN_CIRCLES.iter().filter(|known| known.0 == name).collect();
        let is = |circle: &Circle, within: &str, modules: &[&str]| {
            circle.within == within && circle.modules.iter().map(String::as_str).eq(modules.iter().copied())
        };
        for circle in &found {
            if !known.iter().any(|known| is(circle, known.1, known.2)) {
                let arrows: Vec<_> = circle.arrows.iter().map(String::as_str).collect();
                wrong.push(format!(
                    "{name}: {} in {} name each other in a circle: move what both need into a module of its own\n    {}",
                    circle.modules.join(", "),
                    circle.within,
                    arrows.join("\n    ")
                ));
            }
        }
        let gone = known.iter().filter(|known| !found.iter().any(|circle| is(circle, known.1, known.2)));
        wrong.extend(
            gone.map(|known| format!("{name}: {:?} is no circle now: take it off the list", known.2)),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
