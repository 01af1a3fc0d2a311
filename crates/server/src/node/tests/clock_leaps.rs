//! An engine that is reloaded in the same process after a forward jump of the wall clock.

use store::faulty::Fault;

use super::*;

const DAYS: Duration = Duration::from_hours(10 * 24);

/// Submits a job without a key. Returns its creation time, which is engine time.
async fn engine_time(node: &Node) -> Timestamp {
    try_submit(node, 1, None).await.unwrap()[0].created_at()
}

/// Waits until the view shows that the engine refuses a jump. Returns how far the wall clock is ahead.
async fn refused(node: &Node) -> Duration {
    let mut views = node.shared.view.clone();
    let view = views.wait_for(|view| view.clock.refused > Duration::ZERO).await.unwrap();
    view.clock.refused
}

/// Lets a commit fail, so that the engine is reloaded.
async fn load_again(node: &Node, store: &FaultyStore<SqliteStore>, dial: &Arc<ManualClock>) {
    let loads = store.calls(Operation::Load);
    store.inject_next(Operation::Commit, Fault::After);
    assert_eq!(try_submit(node, 1, None).await, Err(RequestError::OutcomeUnknown));
    let _time = dial.runs();
    node.wait_ready(|now| *now == Readiness::Ready).await;
    assert_eq!(store.calls(Operation::Load), loads + 1);
}

/// D9. No clock confirms the jump, so no engine follows it. Engine time need not wait ten days when the clock is right
/// again.
#[tokio::test]
async fn a_refused_clock_jump_stays_refused_after_a_reload() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::new(sqlite(dir.path())));
    let dial = dial();
    let (node, thread) = ready(Arc::clone(&store) as Arc<dyn Store>, dir.path(), Arc::clone(&dial)).await;
    let before = engine_time(&node).await;
    dial.leap(DAYS);
    assert_eq!(refused(&node).await, DAYS);
    for minutes in 1..=3 {
        load_again(&node, &store, &dial).await;
        dial.on(Duration::from_secs(60));
        let passed = engine_time(&node).await.since(before);
        assert!(passed <= Duration::from_secs(61 * minutes), "engine time followed the jump: {passed}");
        assert_eq!(refused(&node).await, DAYS);
    }
    dial.leap(Duration::ZERO);
    dial.on(Duration::from_secs(1));
    assert_eq!(engine_time(&node).await, dial.now());
    load_again(&node, &store, &dial).await;
    assert_eq!(node.view().clock, engine::ClockView::default());
    node.stop();
    thread.join().await.unwrap();
}

/// D9. The steady clock confirms the time that passes between two engines.
#[tokio::test]
async fn a_reloaded_engine_follows_a_correct_wall_clock() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(FaultyStore::new(sqlite(dir.path())));
    let dial = dial();
    let (node, thread) = ready(Arc::clone(&store) as Arc<dyn Store>, dir.path(), Arc::clone(&dial)).await;
    engine_time(&node).await;
    let release = store.stall(Operation::Load, store.calls(Operation::Load) + 1);
    store.inject_next(Operation::Commit, Fault::After);
    assert_eq!(try_submit(&node, 1, None).await, Err(RequestError::OutcomeUnknown));
    let time = dial.runs();
    release.reached().await;
    drop(time);
    dial.on(Duration::from_secs(24 * 3_600));
    release.release();
    node.wait_ready(|now| *now == Readiness::Ready).await;
    assert_eq!(engine_time(&node).await, dial.now());
    assert_eq!(node.view().clock, engine::ClockView::default());
    node.stop();
    thread.join().await.unwrap();
}
