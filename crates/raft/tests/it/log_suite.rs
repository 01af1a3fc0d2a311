//! The suite of openraft for logs and state machines, with our log.
//!
//! The state machine is a minimal one in memory: the suite judges the log together with what the state machine has
//! applied. Each rule of the suite is a test of its own, because many of them wait a second.

use openraft::entry::RaftEntry;
use openraft::storage::{RaftLogStorageExt, RaftStateMachine, StorageHelper};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{CommittedLeaderId, Entry, Membership};
use raft::log::{Log, OnFailure, Options, Start};
use raft::types::{LogId, NodeId};
use tempfile::TempDir;

use crate::machine::{Config, Failure, Machine};

struct Builder;

impl StoreBuilder<Config, Log, Machine, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Log, Machine), Failure> {
        let folder = tempfile::tempdir().expect("the volume of temporary files is writable");
        let options = Options {
            segment_bytes: 1024,
            cache_bytes: 256,
            on_failure: OnFailure::call(|failure| panic!("{failure}")),
            ..Options::new(1, NodeId(7), Start::New)
        };
        let log = Log::open(&folder.path().join("log"), options).expect("the folder is new");
        Ok((folder, log, Machine::default()))
    }
}

macro_rules! rules {
    ($($rule:ident,)*) => {$(
        #[tokio::test]
        async fn $rule() {
            let (_folder, log, machine) = Builder.build().await.unwrap();
            Suite::<Config, Log, Machine, Builder, TempDir>::$rule(log, machine).await.unwrap();
        }
    )*};
}

// All rules of `Suite::test_store` but `get_initial_state_membership_from_log_and_sm`: see below.
rules! {
    last_membership_in_log_initial,
    last_membership_in_log,
    last_membership_in_log_multi_step,
    get_membership_initial,
    get_membership_from_log_and_empty_sm,
    get_membership_from_empty_log_and_sm,
    get_membership_from_log_le_sm_last_applied,
    get_membership_from_log_gt_sm_last_applied_1,
    get_membership_from_log_gt_sm_last_applied_2,
    get_initial_state_without_init,
    get_initial_state_with_state,
    get_initial_state_last_log_gt_sm,
    get_initial_state_last_log_lt_sm,
    get_initial_state_log_ids,
    get_initial_state_re_apply_committed,
    save_vote,
    get_log_entries,
    limited_get_log_entries,
    try_get_log_entry,
    initial_logs,
    get_log_state,
    get_log_id,
    last_id_in_log,
    last_applied_state,
    purge_logs_upto_0,
    purge_logs_upto_5,
    purge_logs_upto_20,
    delete_logs_since_11,
    delete_logs_since_0,
    append_to_log,
    snapshot_meta,
    apply_single,
    apply_multiple,
}

/// The rule `get_initial_state_membership_from_log_and_sm` without its second part. That part appends entry 1 to a log that
/// is purged up to entry 2. No Raft node does this, and our log refuses it.
#[tokio::test]
async fn the_membership_comes_from_the_state_machine_or_a_later_entry() {
    let (_folder, mut log, mut machine) = Builder.build().await.unwrap();
    let membership = |voters: [u64; 3]| Membership::new(vec![voters.map(NodeId).into()], ());
    let entry = |index, voters| Entry::<Config>::new_membership(id(index), membership(voters));
    machine.apply([Entry::new_blank(id(1)), entry(2, [3, 4, 5])]).await.unwrap();
    for (appended, expected) in [(None, [3, 4, 5]), (Some(entry(3, [1, 2, 3])), [1, 2, 3])] {
        RaftLogStorageExt::<Config>::blocking_append(&mut log, appended).await.unwrap();
        let state = StorageHelper::new(&mut log, &mut machine).get_initial_state().await.unwrap();
        assert_eq!(*state.membership_state.effective().membership(), membership(expected));
    }
    let below = RaftLogStorageExt::<Config>::blocking_append(&mut log, [Entry::new_blank(id(1))]).await;
    assert!(below.unwrap_err().to_string().contains("does not follow the last entry of the log"));
}

fn id(index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(1, NodeId(0)), index)
}

#[tokio::test]
async fn transfer_snapshot() {
    Suite::<Config, Log, Machine, Builder, TempDir>::transfer_snapshot(&Builder).await.unwrap();
}
