//! The suite of openraft for our log and state machine together.

use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::arc;
use crate::log::{Log, OnFailure, Options, Start};
use crate::machine::Belfry;
use crate::machine::copies::{COPY_RATE, Copies};
use crate::machine::snapshot_files::Folder;
use crate::machine::{Applier, Memory, StateMachine};
use crate::types::NodeId;

struct Builder;

impl StoreBuilder<Belfry<Memory>, Log, StateMachine<Memory>, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, Log, StateMachine<Memory>), StorageError<NodeId>> {
        let folder = tempfile::tempdir().expect("the volume of temporary files is writable");
        let options = Options {
            segment_bytes: 1024,
            on_failure: OnFailure::call(|failure| panic!("{failure}")),
            ..Options::new(1, NodeId(7), Start::New)
        };
        let log = Log::open(&folder.path().join("log"), options).expect("the folder is new");
        let snapshots = Folder::open(folder.path().join("snapshots")).expect("the folder is new");
        let (applier, task) = Applier::new(arc(Memory::default()));
        tokio::spawn(task);
        let copies = Copies::new(arc(snapshots), COPY_RATE, CancellationToken::new());
        Ok((folder, log, StateMachine::new(applier, arc(copies))))
    }
}

type Rules = Suite<Belfry<Memory>, Log, StateMachine<Memory>, Builder, TempDir>;

macro_rules! rules {
    ($($rule:ident,)*) => {$(
        #[tokio::test]
        async fn $rule() {
            let (_folder, log, machine) = Builder.build().await.unwrap();
            Rules::$rule(log, machine).await.unwrap();
        }
    )*};
}

// The rules of the log alone run with a minimal state machine: `tests/it/log_suite.rs`.
rules! {
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
    get_initial_state_re_apply_committed,
    last_applied_state,
    snapshot_meta,
    apply_single,
    apply_multiple,
}

#[tokio::test]
async fn transfer_snapshot() {
    Rules::transfer_snapshot(&Builder).await.unwrap();
}
