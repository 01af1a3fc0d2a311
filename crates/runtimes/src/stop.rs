//! Stop signals of the supervisor.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the stop signals: those that a job can choose as its `stop_signal`.
#[derive(Debug)]
pub(crate) struct Stop {
    signals: Vec<(SignalKind, Signal)>,
}

impl Stop {
    /// Handles the stop signals from now on.
    pub(crate) fn new() -> io::Result<Self> {
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
            SignalKind::window_change(),
        ];
        let signals = kinds.into_iter().map(|kind| Ok((kind, signal(kind)?))).collect::<io::Result<_>>()?;
        Ok(Self { signals })
    }

    /// Waits for the next stop signal; returns its number.
    pub(crate) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (kind, signal) in &mut self.signals {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(kind.as_raw_value());
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}
