//! Tests of the `belfry-sim` command as a separate process.

use std::process::{Command, Output};

use sim::run;
use sim::world::plan::{Plan, Profile};

fn sim(args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_belfry-sim")).args(args).output().unwrap();
    let mut text = String::from_utf8(output.stdout.clone()).unwrap();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output, text)
}

/// I29. The same seed gives the same history in another process.
#[test]
fn another_process_plays_the_same_world() {
    for seed in [1, 2, 3] {
        let here = run::play(&Plan::draw(seed, Profile::Short)).history.fingerprint();
        let (output, text) = sim(&["replay", &seed.to_string()]);
        assert!(output.status.success(), "{text}");
        assert!(text.contains(&format!("seed {seed} {here:016x} ")), "{text}");
    }
}

#[test]
fn a_failure_names_its_seed_its_commit_and_the_command_that_replays_it() {
    let args = ["run", "--seeds", "5", "--mutation", "store-forgets-new-jobs", "--commit", "abc1234"];
    let (output, text) = sim(&args);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("seed 0 fails at commit abc1234"), "{text}");
    assert!(text.contains("I1 (acknowledged data is not lost) does not hold for job_"), "{text}");
    assert!(text.contains(" enough:\n"), "{text}");
    let command = "belfry-sim replay 0 --shrink --profile short --mutation store-forgets-new-jobs";
    assert!(text.contains(command), "{text}");
}

#[test]
fn a_written_history_gets_the_same_verdict_as_its_world() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("history.jsonl");
    let file = file.to_str().unwrap();
    for (mutation, verdict) in [(&[][..], "no violation"), (&["--mutation", "store-forgets-keys"], "I2 (")] {
        sim(&[&["replay", "0", "--history", file], mutation].concat());
        let (output, text) = sim(&["check", file]);
        assert_eq!(output.status.success(), mutation.is_empty(), "{text}");
        assert!(text.contains(verdict), "{text}");
    }
    let (output, text) = sim(&["check", "/nowhere"]);
    assert!(!output.status.success() && text.contains("cannot open the history `/nowhere`"), "{text}");
}
