//! Servers: processes that take the shards when they are free, load the rows, and reign.

use std::sync::Arc;

use engine::{Engine, Input, Join, Now, Report, Session};
use leader::LeadershipLease;
use model::ShardId;
use model::record::Lease;
use model::worker::Health;
use model::{Duration, ExecutionId, Fence, Timestamp};

use super::calls::{Loaded, Verdict, Wish};
use super::client::Op;
use super::heir::Heir;
use super::reign::Reign;
use super::{Happening, World};

/// How soon a server asks again for shards that it did not get.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// The pause before a renewal that failed is sent again.
const RENEWAL_PAUSE: Duration = Duration::from_millis(100);
/// How long one that gave the shards away lets the others ask.
const GIVES_WAY: Duration = Duration::from_millis(500);

/// What a server hears.
#[derive(Debug, Clone)]
pub(super) enum ServerMessage {
    // From itself.
    TakeOver,
    Turn,
    Wake,
    RenewLease,
    // From the store.
    Store { number: u64, verdict: Verdict },
    // From workers.
    Hello { worker: usize, connection: u64, join: Box<Join> },
    Beat { worker: usize, connection: u64, session: Session, seq: u64 },
    Report { connection: u64, execution: ExecutionId, fence: Fence, report: Box<Report> },
    Close { connection: u64 },
    // From clients.
    Ask { request: u64, attempt: u32, op: Arc<Op> },
}

/// What a server is at.
#[derive(Debug, Default)]
pub(super) enum Phase {
    #[default]
    Idle,
    Acquiring {
        call: u64,
        since: Timestamp,
    },
    Releasing {
        call: u64,
        /// Whether another server is to have them.
        gives_way: bool,
    },
    Loading {
        call: u64,
    },
    Reigning(Box<Reign>),
}

/// A server.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) up: bool,
    pub(super) paused: bool,
    pub(super) life: u32,
    /// What it would have heard if it were not paused.
    inbox: Vec<(Option<u32>, ServerMessage)>,
    /// How far its wall clock is ahead, in microseconds.
    pub(super) clock_error: i64,
    pub(super) phase: Phase,
    /// The shards as it has them, and until when for certain; meaningful with `leases`.
    pub(super) leases: Option<Arc<[Lease]>>,
    pub(super) lease: Option<LeadershipLease>,
    /// Whether a commit may still be on its way under these leases.
    pub(super) tainted: bool,
    pub(super) renewal: Option<(u64, Timestamp)>,
    /// When the newest commit that it sent arrives at the store.
    pub(super) commit_arrives: Timestamp,
    /// What it knows of the rows while another one owns them.
    pub(super) heir: Option<Heir>,
}

impl World {
    pub(super) fn start_server(&mut self, server: usize) {
        let clock_error = self.servers[server].clock_error;
        let life = self.servers[server].life + 1;
        self.servers[server] = Server { up: true, life, clock_error, ..Server::default() };
        let delay = self.server_dice.millis(1, 500);
        self.tell_self(server, delay, ServerMessage::TakeOver);
    }

    pub(super) fn tell_self(&mut self, server: usize, delay: Duration, message: ServerMessage) {
        let life = Some(self.servers[server].life);
        self.put_in(delay, Happening::Server { server, life, message });
    }

    /// Both clocks of a server: the wall one may be wrong.
    pub(super) fn clocks(&self, server: usize) -> Now {
        let wall = self.now.as_micros().saturating_add(self.servers[server].clock_error);
        Now { wall: Timestamp::from_micros(wall), steady: self.now }
    }

    pub(super) fn server_hears(&mut self, server: usize, life: Option<u32>, message: ServerMessage) {
        let this = &mut self.servers[server];
        if life.is_some_and(|life| life != this.life) {
            return;
        }
        if this.paused && this.up {
            return this.inbox.push((life, message));
        }
        match message {
            ServerMessage::Hello { worker, connection, .. } if !self.is_leading(server) => {
                self.hang_up(server, worker, connection);
            }
            ServerMessage::Beat { worker, connection, .. } if !self.is_leading(server) => {
                self.hang_up(server, worker, connection);
            }
            ServerMessage::Ask { request, attempt, .. } if !self.is_leading(server) => {
                self.answer_loading(request, attempt);
            }
            _ if !self.servers[server].up => {}
            ServerMessage::TakeOver => self.take_over(server),
            ServerMessage::Turn => self.turn(server),
            ServerMessage::Wake => self.wake(server),
            ServerMessage::RenewLease => self.renew_lease(server),
            ServerMessage::Store { number, verdict } => self.store_answers(server, number, verdict),
            ServerMessage::Hello { worker, connection, join } => {
                self.open_session(server, worker, connection, *join);
            }
            ServerMessage::Beat { worker, connection, session, seq } => {
                self.beat(server, worker, connection, session, seq);
            }
            ServerMessage::Report { connection, execution, fence, report } => {
                self.report(server, connection, execution, fence, *report);
            }
            ServerMessage::Close { connection } => self.close_session(server, connection),
            ServerMessage::Ask { request, attempt, op } => self.ask(server, request, attempt, &op),
        }
    }

    pub(super) fn is_reigning(&self, server: usize) -> bool {
        let this = &self.servers[server];
        this.up && matches!(this.phase, Phase::Reigning(_))
    }

    /// Whether it may release what no commit carries.
    pub(super) fn is_leading(&self, server: usize) -> bool {
        let lease = self.servers[server].lease;
        self.is_reigning(server) && lease.is_some_and(|lease| lease.is_valid(self.now))
    }

    /// It goes on after a pause, and hears all that it missed.
    pub(super) fn resume_server(&mut self, server: usize) {
        self.servers[server].paused = false;
        for (life, message) in std::mem::take(&mut self.servers[server].inbox) {
            self.put(self.now, Happening::Server { server, life, message });
        }
    }

    pub(super) fn crash_server(&mut self, server: usize) {
        let this = &mut self.servers[server];
        let phase = std::mem::take(&mut this.phase);
        let inbox = std::mem::take(&mut this.inbox);
        (this.up, this.paused, this.heir) = (false, false, None);
        this.life += 1;
        if let Phase::Reigning(reign) = phase {
            self.abandon(server, *reign);
        }
        // Its connections are reset: who waits knows nothing.
        for (_, message) in inbox {
            if let ServerMessage::Ask { request, attempt, .. } = message {
                self.answer_unknown(request, attempt);
            }
        }
    }

    fn take_over(&mut self, server: usize) {
        let this = &self.servers[server];
        if !matches!(this.phase, Phase::Idle) {
            return;
        }
        match this.leases.clone() {
            Some(leases) if this.tainted => {
                let call = self.call_store(server, Wish::Release(leases));
                self.servers[server].phase = Phase::Releasing { call, gives_way: false };
            }
            Some(_) => self.load(server),
            None => {
                let call = self.call_store(server, Wish::Acquire);
                self.servers[server].phase = Phase::Acquiring { call, since: self.now };
            }
        }
    }

    fn load(&mut self, server: usize) {
        let call = self.call_store(server, Wish::Load);
        self.servers[server].phase = Phase::Loading { call };
    }

    /// It has no shards, or does not know: it asks again a little later.
    pub(super) fn try_later(&mut self, server: usize) {
        self.servers[server].phase = Phase::Idle;
        let delay = self.server_dice.millis(50, 400);
        self.tell_self(server, delay, ServerMessage::TakeOver);
    }

    fn store_answers(&mut self, server: usize, number: u64, verdict: Verdict) {
        if self.servers[server].renewal.is_some_and(|(call, _)| call == number) {
            return self.renewed(server, &verdict);
        }
        match self.servers[server].phase {
            Phase::Acquiring { call, since } if call == number => self.acquired(server, since, verdict),
            Phase::Releasing { call, gives_way } if call == number => {
                let others = self.servers.len() > 1;
                let this = &mut self.servers[server];
                (this.leases, this.tainted) = (None, false);
                this.phase = Phase::Idle;
                if gives_way && others {
                    self.tell_self(server, GIVES_WAY, ServerMessage::TakeOver);
                } else {
                    self.take_over(server);
                }
            }
            Phase::Loading { call } if call == number => self.loaded(server, verdict),
            Phase::Reigning(_) => self.landed(server, number, &verdict),
            _ => {}
        }
    }

    fn acquired(&mut self, server: usize, since: Timestamp, verdict: Verdict) {
        match verdict {
            Verdict::Acquired(Some(leases)) => {
                let ttl = self.plan.setup.shard_lease;
                let this = &mut self.servers[server];
                this.leases = Some(leases.into());
                this.lease = Some(LeadershipLease::new(since, ttl));
                self.tell_self(server, Duration::from_millis(ttl.as_millis() / 3), ServerMessage::RenewLease);
                self.load(server);
            }
            _ => {
                self.stand_by(server);
                self.servers[server].phase = Phase::Idle;
                self.tell_self(server, ASK_AGAIN, ServerMessage::TakeOver);
            }
        }
    }

    fn renew_lease(&mut self, server: usize) {
        let this = &self.servers[server];
        if let (Some(leases), None) = (this.leases.clone(), this.renewal) {
            let call = self.call_store(server, Wish::Renew(leases));
            self.servers[server].renewal = Some((call, self.now));
        }
    }

    fn renewed(&mut self, server: usize, verdict: &Verdict) {
        let Some((_, since)) = self.servers[server].renewal.take() else { return };
        let third = Duration::from_millis(self.plan.setup.shard_lease.as_millis() / 3);
        match verdict {
            Verdict::Renewed => {
                if let Some(lease) = &mut self.servers[server].lease {
                    lease.prolong(since);
                }
                self.tell_self(server, third, ServerMessage::RenewLease);
                self.turn(server);
            }
            Verdict::Fenced => self.lose_shards(server),
            _ => self.tell_self(server, RENEWAL_PAUSE, ServerMessage::RenewLease),
        }
    }

    /// Somebody else has the shards.
    fn lose_shards(&mut self, server: usize) {
        self.servers[server].leases = None;
        self.end_reign(server, &Verdict::Fenced);
        self.try_later(server);
    }

    fn loaded(&mut self, server: usize, verdict: Verdict) {
        let leases = self.servers[server].leases.clone();
        let (Verdict::Loaded(loaded), Some(leases)) = (verdict, leases) else {
            return self.try_later(server);
        };
        let engine = self.inherit(server, &leases, *loaded);
        self.servers[server].phase = Phase::Reigning(Box::new(Reign::new(engine, leases)));
        self.turn(server);
    }

    /// The engine that goes on: the one that followed, or one from rows.
    fn inherit(&mut self, server: usize, leases: &[Lease], loaded: Loaded) -> Engine {
        let now = self.clocks(server);
        let mut engine = self.restore(server, leases, &loaded);
        engine = self.ascend(server, leases, &loaded, &engine).unwrap_or(engine);
        engine.resume_from(loaded.now);
        engine.start(now);
        engine
    }

    /// An engine from rows, with a seed of its own.
    pub(super) fn build(&mut self, server: usize, leases: &[Lease], loaded: &Loaded) -> Engine {
        let now = self.clocks(server);
        let mut engine = self.restore(server, leases, loaded);
        engine.resume_from(loaded.now);
        engine.start(now);
        engine
    }

    /// The same before its start.
    fn restore(&mut self, server: usize, leases: &[Lease], loaded: &Loaded) -> Engine {
        let config = engine::Config {
            seed: self.server_dice.number(),
            lease: self.plan.setup.lease,
            ..engine::Config::default()
        };
        let now = self.clocks(server);
        let mut engine = Engine::new(config, leases, self.plan.shards, now);
        for row in &loaded.rows {
            if let Err(poison) = engine.restore(row.clone()) {
                self.inconsistent(server, format!("a row that was committed is refused: {poison}"));
            }
        }
        if loaded.tail_lost {
            engine.distrust(&(0..self.plan.shards).map(ShardId).collect::<Vec<_>>());
        }
        engine
    }

    pub(super) fn input(&mut self, server: usize, input: Input) {
        let now = self.clocks(server);
        let Phase::Reigning(reign) = &mut self.servers[server].phase else { return };
        self.stats.inputs += 1;
        reign.engine.handle(now, input);
        reign.taken += 1;
        if !reign.turn_wanted {
            reign.turn_wanted = true;
            self.tell_self(server, Duration::ZERO, ServerMessage::Turn);
        }
    }

    fn beat(&mut self, server: usize, worker: usize, connection: u64, session: Session, seq: u64) {
        let Some((_, id)) = self.session_of(server, connection) else {
            return self.hang_up(server, worker, connection);
        };
        let worker = id;
        self.input(server, Input::Beat { worker, session, seq, health: Health::default() });
    }
}
