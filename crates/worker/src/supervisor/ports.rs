//! Ports of executions.
//!
//! An execution gets its ports before its launch and keeps them until all its processes have exited. A fixed port has
//! the number of the job; the others are free ports of the worker's range. A port is free if no execution of this
//! worker has it and a listener can be opened on it. The worker does not keep that listener, because the task opens
//! its own. So another program of the machine can still take the port in between; the task then fails to listen, and
//! its health checks fail.
//!
//! The search for a free port continues after the port that was allocated last. So a port that has become free is not
//! used again at once, and a client that still has its number does not reach the wrong task.
//!
//! # Invariants
//! - No two executions have the same port.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use model::ExecutionId;
use model::spec::Port;
use supervisor::StartFailure;

use crate::config::PortRange;

/// Numbers of the ports of an execution, by name.
pub(super) type PortNumbers = BTreeMap<String, u16>;

/// Ports of all executions of the worker.
#[derive(Debug)]
pub(super) struct Ports {
    range: PortRange,
    /// Port at which the next search begins.
    next: u16,
    owners: HashMap<u16, ExecutionId>,
}

impl Ports {
    /// Creates an allocator without allocated ports. `entropy` selects the port at which the first search begins, so
    /// that a restarted supervisor does not use the same ports again at once.
    pub(super) fn new(range: PortRange, entropy: u64) -> Self {
        let size = u64::from(range.last() - range.first()) + 1;
        let offset = u16::try_from(entropy % size).unwrap_or(0);
        Self { range, next: range.first() + offset, owners: HashMap::new() }
    }

    /// Allocates all `ports` for an execution, or none of them.
    pub(super) fn allocate(
        &mut self,
        execution: ExecutionId,
        ports: &[Port],
    ) -> Result<PortNumbers, StartFailure> {
        let mut numbers = PortNumbers::new();
        // Fixed ports first: a free port must not take one of their numbers.
        let (fixed, free): (Vec<_>, Vec<_>) = ports.iter().partition(|port| port.port.is_some());
        for port in fixed.into_iter().chain(free) {
            match self.find(port) {
                Ok(number) => {
                    self.owners.insert(number, execution);
                    numbers.insert(port.name.clone(), number);
                }
                Err(failure) => {
                    self.release(&numbers);
                    return Err(failure);
                }
            }
        }
        Ok(numbers)
    }

    fn find(&mut self, port: &Port) -> Result<u16, StartFailure> {
        if let Some(number) = port.port {
            return self.check_fixed(&port.name, number).map(|()| number);
        }
        self.find_free().ok_or_else(|| {
            let detail =
                format!("no port is free for `{}` in the port range {} of the worker", port.name, self.range);
            start_failed("no_free_port", detail)
        })
    }

    fn check_fixed(&self, name: &str, number: u16) -> Result<(), StartFailure> {
        let reason = match self.owners.get(&number) {
            Some(owner) => format!("execution `{owner}` of this worker has it"),
            None => match can_listen(number) {
                Ok(()) => return Ok(()),
                Err(error) => format!("cannot listen on it: {error}"),
            },
        };
        Err(start_failed("port_in_use", format!("port {number} (`{name}`) is not available: {reason}")))
    }

    /// Returns a free port of the range, and moves the start of the next search behind it.
    fn find_free(&mut self) -> Option<u16> {
        let (first, last) = (self.range.first(), self.range.last());
        let in_order = (self.next..=last).chain(first..self.next);
        let is_free = |port: &u16| !self.owners.contains_key(port) && can_listen(*port).is_ok();
        let port = in_order.into_iter().find(is_free)?;
        self.next = if port == last { first } else { port + 1 };
        Some(port)
    }

    /// Releases the ports of an execution.
    pub(super) fn release(&mut self, numbers: &PortNumbers) {
        for number in numbers.values() {
            self.owners.remove(number);
        }
    }
}

/// Opens and closes a listener on all addresses of the machine.
fn can_listen(port: u16) -> io::Result<()> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).map(drop)
}

fn start_failed(code: &str, detail: String) -> StartFailure {
    StartFailure { code: code.to_owned(), detail }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;

    fn execution(number: u128) -> ExecutionId {
        ExecutionId::from_bits(number)
    }

    fn free(name: &str) -> Port {
        Port { name: name.into(), port: None }
    }

    fn fixed(name: &str, port: u16) -> Port {
        Port { name: name.into(), port: Some(port) }
    }

    /// Returns listeners on three consecutive ports, which the system does not give to connections.
    fn three_listeners() -> [TcpListener; 3] {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        loop {
            let offset = NEXT.fetch_add(3, Ordering::Relaxed).wrapping_add((std::process::id() * 48) as u16);
            let first = 1_024 + offset % 8_000;
            let listeners = [0, 1, 2].map(|n| TcpListener::bind((Ipv4Addr::UNSPECIFIED, first + n)));
            if let [Ok(first), Ok(second), Ok(third)] = listeners {
                return [first, second, third];
            }
        }
    }

    fn range_of(listeners: &[TcpListener]) -> PortRange {
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
        PortRange::new(port(&listeners[0]), port(listeners.last().unwrap())).unwrap()
    }

    #[test]
    fn a_released_port_is_used_again_after_all_others() {
        let listeners = three_listeners();
        let range = range_of(&listeners);
        drop(listeners);
        let mut ports = Ports::new(range, 1);
        let mut last = None;
        for number in 0..6 {
            let numbers = ports.allocate(execution(number), &[free("http")]).unwrap();
            assert_ne!(Some(numbers["http"]), last);
            ports.release(&numbers);
            last = Some(numbers["http"]);
        }
        let both = ports.allocate(execution(7), &[free("a"), free("b")]).unwrap();
        assert_ne!(both["a"], both["b"]);
    }

    #[test]
    fn a_port_of_another_program_is_not_allocated() {
        let [first, second, third] = three_listeners();
        let range = range_of(&[first, second, third.try_clone().unwrap()]);
        let third_port = third.local_addr().unwrap().port();
        let mut ports = Ports::new(range, 2);
        let failure = ports.allocate(execution(1), &[fixed("http", third_port)]).unwrap_err();
        assert_eq!(failure.code, "port_in_use");
        assert!(
            failure
                .detail
                .starts_with(&format!("port {third_port} (`http`) is not available: cannot listen"))
        );
        let port = ports.allocate(execution(1), &[free("http")]).unwrap()["http"];
        assert_ne!(port, third_port);
    }

    #[test]
    fn a_fixed_port_belongs_to_one_execution() {
        let listeners = three_listeners();
        let range = range_of(&listeners);
        drop(listeners);
        let mut ports = Ports::new(range, 0);
        let port = range.last();
        let numbers = ports.allocate(execution(1), &[fixed("http", port)]).unwrap();
        let failure = ports.allocate(execution(2), &[free("a"), fixed("http", port)]).unwrap_err();
        assert_eq!(failure.code, "port_in_use");
        assert!(failure.detail.contains(&execution(1).to_string()), "{}", failure.detail);
        ports.release(&numbers);
        assert_eq!(ports.allocate(execution(2), &[fixed("http", port)]).unwrap()["http"], port);
    }

    #[test]
    fn a_failed_allocation_keeps_no_port() {
        let listeners = three_listeners();
        let range = range_of(&listeners);
        drop(listeners);
        let mut ports = Ports::new(range, 0);
        let four = ["a", "b", "c", "d"].map(free);
        let failure = ports.allocate(execution(1), &four).unwrap_err();
        assert_eq!(failure.code, "no_free_port");
        assert!(failure.detail.contains(&range.to_string()), "{}", failure.detail);
        assert!(ports.allocate(execution(2), &four[..3]).is_ok());
    }
}
