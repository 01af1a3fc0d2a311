//! Taking shards, and what decides for them then: the engine that followed, or one that is built from all rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use engine::{Engine, Now};
use leader::LeadershipLease;
use model::record::{Lease, LiveRow};
use model::{ShardId, Timestamp};
use store::{Store, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::heir::{self, Heir};
use super::{NodeConfig, Readiness};

/// Chunks of rows on their way from the store to the engine.
const CHUNKS: usize = 8;
/// How long to wait for shards that another server holds before asking again; and if that one is about
/// to give them away.
const ACQUIRE_AGAIN: Duration = Duration::from_millis(250);
const ACQUIRE_SOON: Duration = Duration::from_millis(10);
/// The least pause between two renewals, also if the first of them failed at once.
pub(super) const RENEWAL_PAUSE: Duration = Duration::from_millis(100);

/// Shards, and the engine that decides for them.
pub(super) struct Owned {
    pub(super) engine: Engine,
    pub(super) leases: Arc<[Lease]>,
}

/// Why an engine could not be built.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the engine failed on a row")]
    Panicked,
}

/// Takes every shard, all at once; waits while another server holds some of them, and keeps an heir to what
/// that one does meanwhile.
///
/// The epochs are higher than any before, so a commit of an earlier ownership that is still on its
/// way is refused from here on.
pub(super) async fn acquire(
    store: &dyn Store,
    config: &NodeConfig,
    readiness: &watch::Sender<Readiness>,
    heir: &mut Option<Heir>,
) -> Result<(Arc<[Lease]>, LeadershipLease), StoreError> {
    let mut following = std::pin::pin!(heir::stand_by(store, config, heir));
    let all: Vec<ShardId> = (0..store.shards()).map(ShardId).collect();
    let mut standing = config.standing.clone();
    let mut told = false;
    loop {
        if !standing.borrow().takes {
            let reason = "standing by: it was drained, and another server decides".into();
            readiness.send_replace(Readiness::Loading { reason });
            told = true;
        }
        tokio::select! {
            // Fails where nobody is left who could say that it may not.
            _ = standing.wait_for(|standing| standing.takes && !standing.yields) => {}
            never = &mut following => match never {},
        }
        let sent_at = config.clock.steady();
        let taken = in_time(config, store.acquire(&all, &config.owner, config.lease)).await?;
        if taken.len() == all.len() {
            let lease = LeadershipLease::new(sent_at, config.lease);
            return Ok((taken.into(), if store.is_exclusive() { lease.exclusive() } else { lease }));
        }
        if !taken.is_empty() {
            // Two servers that each kept a part would wait for each other.
            in_time(config, store.release(&taken)).await?;
        }
        if !told {
            let count = all.len() - taken.len();
            tracing::info!(shards = count, "another server holds shards: this one stands by");
            let reason = "standing by: another server that shares the store owns the shards".into();
            readiness.send_replace(Readiness::Loading { reason });
            told = true;
        }
        let hurries = standing.borrow().hurries;
        let apart = Duration::from_millis(rand::random::<u64>() % 100);
        let pause = tokio::time::sleep(if hurries { ACQUIRE_SOON } else { ACQUIRE_AGAIN + apart });
        tokio::select! {
            () = pause => {}
            never = &mut following => match never {},
        }
    }
}

/// The engine of the leased shards: what the heir becomes, or one that is built from their live rows.
pub(super) async fn take(
    store: &dyn Store,
    config: &NodeConfig,
    leases: Arc<[Lease]>,
    lease: &mut LeadershipLease,
    heir: &mut Option<Heir>,
    is_full: bool,
    confirmed: Option<Now>,
) -> Result<Owned, TakeError> {
    let started = Instant::now();
    let heir = heir.take();
    heir::says(config, None);
    let patience = lease.renewal_timeout().to_std();
    // Whatever is asked of the store here may take long, and the lease is renewed meanwhile.
    let renewing = keep(store, &leases, lease, config);
    // Engines are large, and handed from one to the other here.
    let taking = Box::pin(async {
        let lost = store.lost_tails(&leases).await?;
        let (engine, committed, followed) = engine_of(store, config, &leases, heir, lost.is_empty()).await?;
        // Read after the rows, which may have taken long. Only a second opinion: a database that does not tell its clock
        // in time must not cost the loaded engine.
        let of_store = tokio::time::timeout(patience, store.clock()).await;
        let of_store = of_store.ok().and_then(Result::ok).flatten();
        Ok::<_, TakeError>((engine, committed, followed, lost, of_store))
    });
    let (mut engine, committed, followed, lost, of_store) = tokio::select! {
        taken = taking => taken?,
        error = renewing => return Err(error.into()),
    };
    if !lost.is_empty() {
        config.metrics.tail_lost();
        tracing::warn!(
            shards = lost.len(),
            "the store is not the one that it was: it was restored, or a standby took over, and its last commits may be gone; jobs that must not run twice wait until every worker was heard"
        );
        engine.distrust(&lost);
    }
    // Before the clock: what passes between the two makes the engine wait longer, and not shorter.
    let former = store.former_owner();
    let now = believable(config.clock.both(), of_store, confirmed, committed);
    engine.resume_from(committed);
    engine.succeed(former);
    // Before the start, which would begin what waits for its turn.
    engine.hold_new_work(is_full);
    let mut engine = AssertUnwindSafe(engine);
    catch_unwind(AssertUnwindSafe(|| engine.start(now))).map_err(|_| TakeError::Panicked)?;
    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(followed, millis, "shards taken");
    config.metrics.took_over(followed);
    warn_of_leap(config.clock.now(), committed);
    Ok(Owned { engine: engine.0, leases })
}

/// The engine that the heir has ready if it can be trusted, or one that is loaded; with the engine time of the newest
/// commit, and whether the heir had it.
async fn engine_of(
    store: &dyn Store,
    config: &NodeConfig,
    leases: &Arc<[Lease]>,
    heir: Option<Heir>,
    is_trusted: bool,
) -> Result<(Engine, Timestamp, bool), TakeError> {
    match heir {
        Some(heir) if is_trusted => {
            if let Some((engine, now)) = heir.ascend(store, leases).await {
                return Ok((engine, now, true));
            }
        }
        unfit => heir::forget(unfit),
    }
    let (engine, now) = load(store, config, leases).await?;
    Ok((engine, now, false))
}

/// Builds an engine from the live rows of the leased shards. Answers also with the engine time of the newest commit.
async fn load(
    store: &dyn Store,
    config: &NodeConfig,
    leases: &Arc<[Lease]>,
) -> Result<(Engine, Timestamp), TakeError> {
    let started = Instant::now();
    // Rows tell how far engine time is; the start tells what the clock shows.
    let clocks = Now { wall: Timestamp::default(), ..config.clock.both() };
    let mut engine = Engine::new(engine_config(config), leases, store.shards(), clocks);
    let (rows_tx, rows) = mpsc::channel(CHUNKS);
    let (loaded, refused) = tokio::join!(store.load(leases, rows_tx), restore(&mut engine, rows, config));
    let (loaded, refused) = (loaded?, refused.ok_or(TakeError::Panicked)?);
    config.metrics.set_aside(loaded.quarantined + refused);
    tracing::info!(
        rows = loaded.rows,
        quarantined = loaded.quarantined + refused,
        millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        "shards loaded"
    );
    Ok((engine, loaded.now))
}

/// The engine's settings, with a seed of its own for each: under the same epoch and within the same millisecond,
/// two engines must not make the same ids.
pub(super) fn engine_config(config: &NodeConfig) -> engine::Config {
    engine::Config { seed: config.engine.seed ^ rand::random::<u64>(), ..config.engine.clone() }
}

/// Gives the engine every row. Returns how many it refused, or `None` if it failed.
async fn restore(
    engine: &mut Engine,
    mut rows: mpsc::Receiver<Vec<LiveRow>>,
    config: &NodeConfig,
) -> Option<u64> {
    let mut refused = 0;
    while let Some(chunk) = rows.recv().await {
        let restored = catch_unwind(AssertUnwindSafe(|| {
            chunk.into_iter().filter_map(|row| engine.restore(row).err()).collect::<Vec<_>>()
        }));
        let Ok(poison) = restored else {
            config.metrics.engine_panicked();
            return None;
        };
        for poison in &poison {
            tracing::error!(error = %poison, "a live row was set aside: it contradicts the others");
        }
        refused += poison.len() as u64;
    }
    Some(refused)
}

/// Renews the leases for as long as a load takes; ends if another server has them.
async fn keep(
    store: &dyn Store,
    leases: &[Lease],
    lease: &mut LeadershipLease,
    config: &NodeConfig,
) -> StoreError {
    let mut fails = false;
    loop {
        let pause = lease.renew_at().since(config.clock.steady()).to_std();
        tokio::time::sleep(pause.max(RENEWAL_PAUSE)).await;
        let sent_at = config.clock.steady();
        match renew(store, leases, lease, config).await {
            Err(error @ (StoreError::Fenced { .. } | StoreError::Fatal { .. })) => return error,
            // Once, not several times a second.
            Err(error) if !std::mem::replace(&mut fails, true) => {
                tracing::warn!(error = %error, "cannot renew the leadership lease; trying again");
            }
            Err(_) => {}
            Ok(()) => {
                fails = false;
                lease.prolong(sent_at);
            }
        }
    }
}

/// Renews the leases; a store that takes longer than an answer is worth is unavailable.
pub(super) async fn renew(
    store: &dyn Store,
    leases: &[Lease],
    lease: &LeadershipLease,
    config: &NodeConfig,
) -> Result<(), StoreError> {
    let limit = lease.renewal_timeout();
    tokio::time::timeout(limit.to_std(), store.renew(leases, config.lease))
        .await
        .unwrap_or_else(|_elapsed| Err(silent(limit)))
}

/// The answer to a call about ownership, or an error if it takes longer than the lease, which would have ended by then:
/// a call that hangs must not keep this server from asking again, over a connection that works.
pub(super) async fn in_time<T>(
    config: &NodeConfig,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let limit = config.lease;
    tokio::time::timeout(limit.to_std(), call).await.unwrap_or_else(|_elapsed| Err(silent(limit)))
}

fn silent(limit: model::Duration) -> StoreError {
    StoreError::Unavailable { source: format!("it did not answer within {limit}").into() }
}

/// The clocks that the engine starts with. A wall clock that is ahead of the newest commit tells of an outage, or is
/// wrong: where the store has a clock of its own, that one says which; else the time that the engine before this one
/// `confirmed`, if this process had one, and the steady time since then.
fn believable(clocks: Now, store: Option<Timestamp>, confirmed: Option<Now>, committed: Timestamp) -> Now {
    let of_process = || {
        let Now { wall, steady } = confirmed?;
        Some(("that this process confirmed before", wall + clocks.steady.since(steady)))
    };
    let second = store.map(|store| ("of the database's clock", store)).or_else(of_process);
    match second {
        // Not before the newest commit: a time that is behind engine time would confirm nothing later.
        Some((source, second)) if clocks.wall > second.max(committed) + engine::LEAP_MAX => {
            tracing::warn!(
                ahead = %clocks.wall.since(second),
                "the wall clock is ahead of the time {source}, which is believed: set the clock right"
            );
            Now { wall: second.max(committed), ..clocks }
        }
        _ => clocks,
    }
}

/// An hour of outage is no news; a clock that stands behind the rows is.
fn warn_of_leap(wall: Timestamp, committed: Timestamp) {
    let behind = committed.since(wall);
    if behind > model::Duration::from_secs(1) {
        tracing::warn!(behind = %behind, "the clock stands before the newest commit: engine time waits for it");
    }
}
