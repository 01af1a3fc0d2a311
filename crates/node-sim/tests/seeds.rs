//! Some seeds, each in a process of its own.

use std::process::Command;

/// D1–D4, I1–I30. Nothing is lost, doubled or stuck, and some of the seeds play the same once more, packet by packet.
#[test]
fn servers_and_agents_keep_their_promises_over_a_rough_network() {
    let args = ["run", "--seeds", "20", "--again", "5"];
    let output = Command::new(env!("CARGO_BIN_EXE_belfry-node-sim")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.ends_with("20 seeds, 4 of them twice: nothing found\n"), "{said}");
}

/// The checker of these worlds sees what goes wrong in them.
#[test]
fn every_deliberate_bug_of_agent_and_store_is_found() {
    // The seeds that found them when the results were kept: playing all that find nothing takes minutes.
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/mutations-node.json");
    let args = ["mutations", "--kept", kept];
    let output = Command::new(env!("CARGO_BIN_EXE_belfry-node-sim")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.lines().count() > 5, "{said}");
}
