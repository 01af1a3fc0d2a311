//! Failures of jobs, grouped by their signature.
//!
//! ```text
//! engine: FailureCount by name and Signature ─> commit ─> pending rows ─> fold ─> FailureGroup
//! ```
//!
//! Two failures have the same [`Signature`] if their error code, their exit code and their normalised message are equal
//! ([`normalise`]). The failures of a namespace with the same signature are one [`FailureGroup`]. A user can set the state
//! of a group: known, muted or resolved.
//!
//! Failures travel with the statistics of their commit, so each is counted once, also after a
//! crash or a takeover.
//!
//! # Invariants
//! - Only the last failure of a job counts: an execution that is retried does not.
//! - A group has bounded size, whatever jobs fail.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Duration, JobId, Timestamp};

/// Most names that a group lists, those with the newest failures.
pub const NAMES_MAX: usize = 50;
/// Error of the group for failures of all further errors and exit codes.
const REST: &str = "other";
/// Most jobs that a group lists, the newest ones.
pub const JOBS_MAX: usize = 10;
/// Hours of which a group has the counts.
pub const HOURS_MAX: usize = 7 * 24;
const HOUR: Duration = Duration::from_hours(1);
/// Longest normalised message, in bytes. What differs only after it is one group.
pub const NORMALISED_MAX: usize = 200;

/// What equal failures have in common.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signature {
    /// Error code of the result (`exit_code`, `timeout`, …), or the cause of the end if there is no result.
    pub error: Box<str>,
    /// Exit code of the process.
    pub exit_code: Option<i32>,
    /// Message of the result without what differs from failure to failure. Empty for failures without a message, and in
    /// the group of failures that have no group of their own.
    pub message: Box<str>,
}

impl Signature {
    /// Returns the signature of a failure from its error code, its exit code and its message.
    pub fn new(error: &str, exit_code: Option<i32>, message: &str) -> Self {
        Self { error: error.into(), exit_code, message: normalise(message).into() }
    }

    /// Returns the signature of the group for failures that have no group of their own.
    pub fn other(&self) -> Self {
        Self { message: Box::default(), ..self.clone() }
    }

    /// Returns the signature of the group for failures of all further errors and exit codes.
    pub fn rest() -> Self {
        Self { error: REST.into(), exit_code: None, message: Box::default() }
    }

    /// Returns the ID of the group of this signature. It is unique within a namespace.
    ///
    /// The hash is FNV-1a with 64 bits (draft-eastlake-fnv), because the ID is stored.
    pub fn group(&self) -> FailureGroupId {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let exit_code = self.exit_code.map(i32::to_be_bytes);
        let parts: [&[u8]; 3] =
            [self.error.as_bytes(), exit_code.as_ref().map_or(&[], |code| code), self.message.as_bytes()];
        // No text contains this byte.
        let bytes = parts.into_iter().flat_map(|part| part.iter().copied().chain([0xff]));
        FailureGroupId(bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME)))
    }
}

/// Returns a message without what differs from failure to failure: each number, date, address and ID becomes `#`, and
/// whitespace becomes one space. The result has at most [`NORMALISED_MAX`] bytes.
///
/// Numbers that `.`, `,`, `:`, `-` or `/` join are one number. IDs are UUIDs, `0x…`, and the words for which
/// [`is_id`] returns true.
pub fn normalise(message: &str) -> String {
    let mut text = String::with_capacity(message.len().min(NORMALISED_MAX));
    let mut rest = message.trim_start();
    while let Some(first) = rest.chars().next() {
        if text.len() >= NORMALISED_MAX {
            break;
        }
        if let Some(after) = after_uuid(rest) {
            text.push('#');
            rest = after;
        } else if first.is_ascii_alphanumeric() {
            let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
            let (word, after) = rest.split_at(length);
            push_word(&mut text, word);
            rest = after;
            // `1.5`, `10:30:00` and `2026-11-28` are one number each.
            let joined = rest.strip_prefix(['.', ',', ':', '-', '/']);
            if text.ends_with('#')
                && word.ends_with(|last: char| last.is_ascii_digit())
                && let Some(next) = joined.filter(|next| next.starts_with(|c: char| c.is_ascii_digit()))
            {
                text.pop();
                rest = next;
            }
        } else {
            let length = first.len_utf8();
            if first.is_whitespace() || first.is_control() {
                rest = rest[length..].trim_start_matches(|c: char| c.is_whitespace() || c.is_control());
                if !rest.is_empty() && !text.is_empty() {
                    text.push(' ');
                }
            } else {
                text.push(first);
                rest = &rest[length..];
            }
        }
    }
    text.truncate(text.floor_char_boundary(NORMALISED_MAX));
    text.truncate(text.trim_end().len());
    text
}

/// Returns what follows the UUID at the start of a text.
fn after_uuid(text: &str) -> Option<&str> {
    const LEN: usize = 36;
    const DASHES: [usize; 4] = [8, 13, 18, 23];
    let fits = |(i, byte): (usize, &u8)| {
        if DASHES.contains(&i) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
    };
    let (uuid, after) = text.split_at_checked(LEN)?;
    uuid.as_bytes().iter().enumerate().all(fits).then_some(after)
}

/// Whether a word of ASCII letters and digits is an ID rather than a name. Names such as `S3UploadFailedError` have few
/// digits, IDs such as `3f2a1bc` are hexadecimal or have many.
fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_hexadecimal = || word.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits > 0
        && (word.starts_with("0x")
            || (word.len() >= 6 && is_hexadecimal())
            || (word.len() >= 5 && digits * 3 >= word.len()))
}

/// Adds a word of ASCII letters and digits to a normalised message.
fn push_word(text: &mut String, word: &str) {
    if is_id(word) {
        text.push('#');
        return;
    }
    let mut in_number = false;
    for letter in word.chars() {
        let is_digit = letter.is_ascii_digit();
        match (is_digit, in_number) {
            (true, false) => text.push('#'),
            (true, true) => {}
            (false, _) => text.push(letter),
        }
        in_number = is_digit;
    }
}

/// ID of a group of failures: unique within its namespace, 16 hexadecimal digits as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FailureGroupId(pub u64);

impl fmt::Display for FailureGroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for FailureGroupId {
    type Err = ParseFailureGroupIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_id.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.map(Self).ok_or_else(|| ParseFailureGroupIdError(text.chars().take(64).collect()))
    }
}

/// Text that is not the ID of a failure group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the ID of a failure group: expected 16 hexadecimal digits")]
pub struct ParseFailureGroupIdError(String);

/// Failures of jobs with the same name and signature, in one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureCount {
    /// Namespace of the jobs.
    pub namespace: Arc<str>,
    /// Name of the jobs, or the empty text for names without statistics of their own.
    pub name: Arc<str>,
    /// Signature of the failures.
    pub signature: Signature,
    /// Number of failed jobs.
    pub count: u64,
    /// The newest of the jobs; fewer than twice [`JOBS_MAX`].
    pub jobs: Vec<JobId>,
    /// Message of the failure that was counted last.
    pub message: Box<str>,
}

/// State of a failure group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureState {
    /// No user has set a state, or a job failed again after it was resolved.
    Open,
    /// A user knows the failure, and works on it.
    Known,
    /// The failure is of no interest: no overview shows it.
    Muted,
    /// The failure is fixed. The next failure opens the group again.
    Resolved,
}

crate::status::words! { FailureState, "a state of a failure group", {
    Open = "open";
    Known = "known";
    Muted = "muted";
    Resolved = "resolved";
} }

impl FailureState {
    /// Returns the number of the state in stores; a number never changes its meaning.
    pub const fn code(self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Known => 1,
            Self::Muted => 2,
            Self::Resolved => 3,
        }
    }
}

/// State that a user gave a failure group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureMark {
    /// The state; never [`FailureState::Open`].
    pub state: FailureState,
    /// Note for others.
    pub note: Option<Box<str>>,
    /// Who set the state.
    pub by: Box<str>,
    /// When the state was set.
    pub at: Timestamp,
    /// Failed jobs of the group when the state was set. Times of two servers could not tell whether a job failed later.
    pub count: u64,
}

/// Failures of one name in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedName {
    /// Name of the jobs, or the empty text for names without statistics of their own.
    pub name: Arc<str>,
    /// Number of failed jobs.
    pub count: u64,
    /// Time of the newest failure.
    pub last_seen: Timestamp,
}

/// Failures of a namespace with the same signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureGroup {
    /// Namespace of the jobs.
    pub namespace: Arc<str>,
    /// Signature of the failures.
    pub signature: Signature,
    /// Message of the newest failure.
    pub message: Box<str>,
    /// Time of the first failure.
    pub first_seen: Timestamp,
    /// Time of the newest failure.
    pub last_seen: Timestamp,
    /// Number of failed jobs.
    pub count: u64,
    /// Names of the jobs, with the newest failure first; at most [`NAMES_MAX`].
    pub names: Vec<FailedName>,
    /// Number of failed jobs whose names are not listed.
    pub unlisted: u64,
    /// The newest failed jobs, newest first; at most [`JOBS_MAX`].
    pub jobs: Vec<JobId>,
    /// Number of failed jobs in each hour of the last seven days with failures, by the start of the hour, oldest first.
    pub hours: Vec<(Timestamp, u64)>,
    /// State that a user set.
    pub mark: Option<FailureMark>,
}

/// Keeps the newest jobs, each once.
fn keep_newest(jobs: &mut Vec<JobId>) {
    jobs.sort_unstable_by_key(|job| Reverse(*job));
    jobs.dedup();
    jobs.truncate(JOBS_MAX);
}

impl FailureCount {
    /// Counts another failed job.
    pub fn count(&mut self, job: JobId) {
        self.count += 1;
        self.jobs.push(job);
        // Sorted only now and then: thousands of jobs may fail at the same time.
        if self.jobs.len() >= 2 * JOBS_MAX {
            keep_newest(&mut self.jobs);
        }
    }
}

impl FailureGroup {
    /// Returns the group of failures of one commit.
    pub fn new(at: Timestamp, failures: &FailureCount) -> Self {
        let mut group = Self {
            namespace: Arc::clone(&failures.namespace),
            signature: failures.signature.clone(),
            message: failures.message.clone(),
            first_seen: at,
            last_seen: at,
            count: 0,
            names: Vec::new(),
            unlisted: 0,
            jobs: Vec::new(),
            hours: Vec::new(),
            mark: None,
        };
        group.add(at, failures);
        group
    }

    /// Adds failures of a commit, whose engine time is `at`.
    ///
    /// The order matters only if the group has more than [`NAMES_MAX`] names: a name that is left out and fails again
    /// counts from one again, and its earlier failures stay in `unlisted`.
    pub fn add(&mut self, at: Timestamp, failures: &FailureCount) {
        self.count += failures.count;
        self.first_seen = self.first_seen.min(at);
        // Of failures at the same time, either may be added first.
        if (at, &failures.message) > (self.last_seen, &self.message) {
            self.message = failures.message.clone();
        }
        self.last_seen = self.last_seen.max(at);
        self.add_name(at, failures);
        self.jobs.extend(&failures.jobs);
        keep_newest(&mut self.jobs);
        self.add_hour(at.floor(HOUR), failures.count);
    }

    fn add_name(&mut self, at: Timestamp, failures: &FailureCount) {
        match self.names.iter_mut().find(|known| known.name == failures.name) {
            Some(known) => {
                known.count += failures.count;
                known.last_seen = known.last_seen.max(at);
            }
            None => self.names.push(FailedName {
                name: Arc::clone(&failures.name),
                count: failures.count,
                last_seen: at,
            }),
        }
        self.names.sort_by(|a, b| b.last_seen.cmp(&a.last_seen).then_with(|| a.name.cmp(&b.name)));
        self.unlisted +=
            self.names.drain(NAMES_MAX.min(self.names.len())..).map(|known| known.count).sum::<u64>();
    }

    fn add_hour(&mut self, hour: Timestamp, count: u64) {
        match self.hours.binary_search_by_key(&hour, |(start, _)| *start) {
            Ok(index) => self.hours[index].1 += count,
            Err(index) => self.hours.insert(index, (hour, count)),
        }
        let newest = self.hours.last().map_or(hour, |(start, _)| *start);
        let days = Duration::from_hours(HOURS_MAX as u64);
        self.hours.retain(|(start, _)| *start + days > newest);
    }

    /// Returns the number of failed jobs in the last 24 hours before `now`. Of an hour that began earlier, all jobs count.
    pub fn last_24h(&self, now: Timestamp) -> u64 {
        let start = now - Duration::from_hours(24);
        self.hours.iter().filter(|(hour, _)| *hour + HOUR > start).map(|(_, count)| count).sum()
    }

    /// Returns the ID of the group.
    pub fn id(&self) -> FailureGroupId {
        self.signature.group()
    }

    /// Whether a job failed after a user had resolved the group.
    pub fn is_reopened(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.state == FailureState::Resolved && self.count > mark.count)
    }

    /// Returns the state of the group.
    pub fn state(&self) -> FailureState {
        match &self.mark {
            Some(mark) if !self.is_reopened() => mark.state,
            _ => FailureState::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_from_failure_to_failure_is_removed() {
        for (message, expected) in [
            ("KeyError: 'amount'", "KeyError: 'amount'"),
            ("timeout after 30 s", "timeout after # s"),
            ("timeout after 1.5 s", "timeout after # s"),
            ("2026-11-28T10:30:00Z connect to 10.0.0.7:5432 failed", "#Z connect to # failed"),
            ("2026-11-28 10:30:00,123 ERROR boom", "# # ERROR boom"),
            ("order 550e8400-e29b-41d4-a716-446655440000 not found", "order # not found"),
            ("segfault at 0x7f3a err 4", "segfault at # err #"),
            ("no job job_01k9zq3m6c0000000000000000", "no job job_#"),
            ("commit 3f2a1bc was deleted", "commit # was deleted"),
            ("pod web-7d9f8b6c5-x7k2p was evicted", "pod web-#-# was evicted"),
            ("S3UploadFailedError: timed out", "S#UploadFailedError: timed out"),
            ("EC2ConnectionError: timed out", "EC#ConnectionError: timed out"),
            ("Utf8DecodeError at log4j", "Utf#DecodeError at log#j"),
            ("cafe facade decade", "cafe facade decade"),
            ("a\tb\r\n  c  ", "a b c"),
            ("磁盘 3 已满", "磁盘 # 已满"),
            ("", ""),
        ] {
            assert_eq!(normalise(message), expected, "{message}");
        }
    }

    proptest! {
        #[test]
        fn a_normalised_message_is_short_and_stays_as_it_is(message in ".{0,400}") {
            let once = normalise(&message);
            prop_assert!(once.len() <= NORMALISED_MAX);
            prop_assert!(!once.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_control()));
            prop_assert_eq!(normalise(&once), once);
        }

        /// Two pending rows may be folded in either order.
        #[test]
        fn failures_add_up_in_any_order(parts in prop::collection::vec((0u64..500, 0usize..4, 1u64..9), 1..20)) {
            let counts: Vec<_> = parts.iter().enumerate().map(|(i, &(hour, name, count))| {
                let at = Timestamp::from_millis(1_800_000_000_000) + Duration::from_hours(hour)
                    + Duration::from_millis(i as u64);
                (at, failure(&format!("n{name}"), JobId::from_bits(i as u128), count))
            }).collect();
            let group = |counts: &mut dyn Iterator<Item = &(Timestamp, FailureCount)>| {
                let (at, first) = counts.next().unwrap();
                let mut group = FailureGroup::new(*at, first);
                counts.for_each(|(at, count)| group.add(*at, count));
                group
            };
            let (forward, backward) = (group(&mut counts.iter()), group(&mut counts.iter().rev()));
            prop_assert_eq!(&forward, &backward);
            prop_assert_eq!(forward.count, parts.iter().map(|(_, _, count)| count).sum::<u64>());
            prop_assert!(forward.hours.len() <= HOURS_MAX);
        }
    }

    fn failure(name: &str, job: JobId, count: u64) -> FailureCount {
        let message = "exited with code 3: KeyError: 'x'";
        FailureCount {
            namespace: "default".into(),
            name: name.into(),
            signature: Signature::new("exit_code", Some(3), message),
            count,
            jobs: vec![job],
            message: message.into(),
        }
    }

    #[test]
    fn a_group_has_bounded_size_and_loses_no_count() {
        let start = Timestamp::from_millis(1_800_000_000_000);
        let mut group = FailureGroup::new(start, &failure("first", JobId::from_bits(0), 1));
        for i in 1..=200_u64 {
            let at = start + Duration::from_hours(i);
            group.add(at, &failure(&format!("name-{i}"), JobId::from_bits(i.into()), 2));
        }
        assert_eq!(
            (group.names.len(), group.jobs.len(), group.hours.len()),
            (NAMES_MAX, JOBS_MAX, HOURS_MAX)
        );
        assert_eq!(group.count, 401);
        assert_eq!(group.names.iter().map(|name| name.count).sum::<u64>() + group.unlisted, 401);
        assert_eq!(&*group.names[0].name, "name-200");
        assert_eq!(group.jobs[0], JobId::from_bits(200));
        assert_eq!((group.first_seen, group.last_seen), (start, start + Duration::from_hours(200)));
    }

    #[test]
    fn a_failure_opens_a_resolved_group_again_and_no_other() {
        let start = Timestamp::from_millis(1_800_000_000_000);
        for (state, expected) in [
            (FailureState::Resolved, FailureState::Open),
            (FailureState::Muted, FailureState::Muted),
            (FailureState::Known, FailureState::Known),
        ] {
            let mut group = FailureGroup::new(start, &failure("a", JobId::from_bits(1), 1));
            assert_eq!(group.state(), FailureState::Open);
            let at = start + Duration::from_secs(1);
            group.mark = Some(FailureMark { state, note: None, by: "ann".into(), at, count: group.count });
            assert_eq!(group.state(), state);
            group.add(at + Duration::from_secs(1), &failure("a", JobId::from_bits(2), 1));
            assert_eq!((group.state(), group.is_reopened()), (expected, expected == FailureState::Open));
        }
    }

    #[test]
    fn the_id_of_a_group_depends_on_each_part_of_its_signature() {
        let signatures = [
            Signature::new("exit_code", Some(3), "a"),
            Signature::new("exit_code", Some(4), "a"),
            Signature::new("exit_code", None, "a"),
            Signature::new("signal", Some(3), "a"),
            Signature::new("exit_code", Some(3), "b"),
            Signature::new("exit_code", Some(3), ""),
        ];
        let ids: std::collections::BTreeSet<_> = signatures.iter().map(Signature::group).collect();
        assert_eq!(ids.len(), signatures.len());
        let id = signatures[0].group();
        // Stored, so it must never change.
        assert_eq!(id.to_string(), "ce22c83b0dabff4e");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("12".parse::<FailureGroupId>().is_err());
    }
}
