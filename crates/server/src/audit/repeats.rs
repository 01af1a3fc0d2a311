//! Counts equal requests that did not succeed.
//!
//! The first one makes an entry at once. Further ones with the same caller, network, namespace, action and error code are
//! only counted; the count becomes one entry a minute later. So a flood of denied requests costs two entries a minute for
//! each caller and action, and at most [`KINDS_MAX`] kinds are counted one by one. All others share a few kinds.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use audit::Entry;
use tokio::time::Instant;

/// Time in which equal requests are counted.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Most kinds of requests that are counted one by one.
pub(super) const KINDS_MAX: usize = 1_000;
/// Caller of the requests beyond these kinds.
const VARIOUS: &str = "(various)";

/// What equal requests have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Kind {
    token_id: Option<String>,
    actor: String,
    /// Address; for IPv6 its /64 network, of which a caller may use every address.
    network: Option<IpAddr>,
    namespace: Option<String>,
    action: String,
    code: Option<String>,
}

/// Requests of one kind since their first one.
struct Counted {
    until: Instant,
    count: u64,
    /// The last one, without an object if they concern several.
    last: Option<Entry>,
}

/// Requests that did not succeed in the last minute.
#[derive(Default)]
pub(super) struct Repeats(HashMap<Kind, Counted>);

impl Repeats {
    /// Counts a request. Returns its entry if it is the first one of its kind.
    pub(super) fn count(&mut self, entry: Entry, now: Instant) -> Option<Entry> {
        let kind = Kind {
            token_id: entry.token_id.clone(),
            actor: entry.actor.clone(),
            network: network(&entry),
            namespace: entry.namespace.clone(),
            action: entry.action.clone(),
            code: entry.code.clone(),
        };
        let is_counted = self.0.len() < KINDS_MAX || self.0.contains_key(&kind);
        let (kind, entry) = if is_counted { (kind, entry) } else { various(entry) };
        match self.0.entry(kind) {
            Slot::Vacant(slot) => {
                slot.insert(Counted { until: now + WINDOW, count: 0, last: None });
                Some(entry)
            }
            Slot::Occupied(mut slot) => {
                let counted = slot.get_mut();
                counted.count += 1;
                let object = match &counted.last {
                    Some(last) if last.object != entry.object => None,
                    _ => entry.object.clone(),
                };
                counted.last = Some(Entry { object, ..entry });
                None
            }
        }
    }

    /// Returns the entries of the kinds whose minute is over, and forgets these kinds. Returns all kinds if `all`.
    pub(super) fn over(&mut self, now: Instant, all: bool) -> Vec<Entry> {
        let over = self.0.extract_if(|_, counted| all || counted.until <= now);
        over.filter_map(|(_, counted)| Some(Entry { repeats: Some(counted.count), ..counted.last? }))
            .collect()
    }
}

/// Returns the shared kind of a request beyond the counted kinds, and its entry.
fn various(entry: Entry) -> (Kind, Entry) {
    let entry = Entry {
        actor: VARIOUS.to_owned(),
        token_id: None,
        address: None,
        user_agent: None,
        request_id: None,
        action: VARIOUS.to_owned(),
        namespace: None,
        object: None,
        ..entry
    };
    let kind = Kind {
        token_id: None,
        actor: entry.actor.clone(),
        network: None,
        namespace: None,
        action: entry.action.clone(),
        code: entry.code.clone(),
    };
    (kind, entry)
}

fn network(entry: &Entry) -> Option<IpAddr> {
    match entry.address.as_deref()?.parse().ok()? {
        IpAddr::V6(address) => Some(Ipv6Addr::from(u128::from(address) >> 64 << 64).into()),
        address => Some(address),
    }
}
