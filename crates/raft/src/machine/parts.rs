//! Groups that are larger than an entry may be.
//!
//! ```text
//!  offset  bytes
//!       0      1  format: 1
//!       1      1  flags: 1, a part
//!       2      2  number of the part, from 0
//!       4      2  number of parts
//!       6      8  id of the group, random
//!      14         bytes of the group
//! ```
//!
//! The leader writes the parts of a group one after another, without another group between them. Memberships may come
//! between: they are held back, so that the applied position stays before the first part. Parts whose leader was
//! deposed are discarded: the rest of their group can never come. What is discarded depends on the log alone, so it is
//! equal on every server.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Answers, Content, Discarded, Entry, MachineError};
use crate::codec::Take;

const FORMAT: u8 = 1;
const IS_PART: u8 = 1;
const HEADER_BYTES: usize = 14;

/// Maximum bytes of a group in one entry, and of a part.
pub(crate) const PART_BYTES: usize = 1024 * 1024;
/// Maximum bytes of a group.
pub(crate) const GROUP_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Returns the payloads of the entries for a group: the group itself, or its parts.
pub(crate) fn split(group: Vec<u8>, id: u64, part_bytes: usize) -> Vec<Arc<[u8]>> {
    if group.len() <= part_bytes {
        return vec![Arc::from(group)];
    }
    let count = group.len().div_ceil(part_bytes);
    let parts = u16::try_from(count).expect("groups over GROUP_BYTES_MAX are refused before");
    let header = |part: u16| {
        let mut bytes = vec![FORMAT, IS_PART];
        bytes.extend(part.to_le_bytes());
        bytes.extend(parts.to_le_bytes());
        bytes.extend(id.to_le_bytes());
        bytes
    };
    let payload = |(part, chunk): (u16, &[u8])| [&header(part)[..], chunk].concat().into();
    (0..parts).zip(group.chunks(part_bytes)).map(payload).collect()
}

struct Header {
    part: u16,
    parts: u16,
    group: u64,
}

/// Returns the header of a part, or `None` for a whole group.
fn header(payload: &[u8]) -> Result<Option<Header>, MachineError> {
    let mut take = Take(payload);
    let (format, flags) = (take.u8(), take.u8());
    if flags.is_none_or(|flags| flags & IS_PART == 0) {
        // The machine judges the format of a group.
        return Ok(None);
    }
    let parsed = (|| Some(Header { part: take.u16()?, parts: take.u16()?, group: take.u64()? }))();
    match parsed {
        Some(header) if format == Some(FORMAT) && header.part < header.parts => Ok(Some(header)),
        _ => Err(MachineError::new(
            "an entry of the log is part of a group in a format that this version does not know: run the newer version",
        )),
    }
}

/// An entry on its way to the machine.
#[derive(Debug)]
pub(crate) struct Queued<A> {
    pub(crate) entry: Entry,
    pub(crate) answers: oneshot::Sender<Answers<A>>,
}

/// The parts of a group that have arrived.
#[derive(Debug)]
struct Collected<A> {
    group: u64,
    next: u16,
    bytes: Vec<u8>,
    /// Memberships that came between the parts.
    held: Vec<Queued<A>>,
    newest: Entry,
}

/// Joins parts.
#[derive(Debug)]
pub(crate) struct Assembler<A> {
    collected: Option<Collected<A>>,
}

impl<A> Assembler<A> {
    pub(crate) fn new() -> Self {
        Self { collected: None }
    }

    /// Takes the next entry of the log; appends the entries to `ready` that the machine can apply now.
    pub(crate) fn push(&mut self, queued: Queued<A>, ready: &mut Vec<Queued<A>>) -> Result<(), MachineError> {
        let position = queued.entry.position;
        let continues = |collected: &Collected<A>| collected.newest.position.leader_id == position.leader_id;
        if self.collected.as_ref().is_some_and(|collected| !continues(collected)) {
            self.discard(ready);
        }
        let Content::Group(payload) = &queued.entry.content else {
            match &mut self.collected {
                Some(collected) => collected.held.push(queued),
                None => ready.push(queued),
            }
            return Ok(());
        };
        match header(payload)? {
            None => {
                self.discard(ready);
                ready.push(queued);
            }
            Some(header) => self.push_part(&header, queued, ready),
        }
        Ok(())
    }

    fn push_part(&mut self, header: &Header, queued: Queued<A>, ready: &mut Vec<Queued<A>>) {
        let Queued { entry, answers } = queued;
        let Content::Group(payload) = &entry.content else { return };
        let bytes = &payload[HEADER_BYTES..];
        if header.part == 0 {
            self.discard(ready);
            let newest = Entry { position: entry.position, content: Content::Blank };
            let (group, bytes) = (header.group, bytes.to_vec());
            self.collected = Some(Collected { group, next: 1, bytes, held: Vec::new(), newest });
        } else {
            let expected = |collected: &&mut Collected<A>| {
                collected.group == header.group && collected.next == header.part
            };
            let Some(collected) = self.collected.as_mut().filter(expected) else {
                // The parts before were not written: leadership was lost and won between them.
                self.discard(ready);
                let _ = answers.send(Err(Discarded));
                ready.push(blank(entry.position));
                return;
            };
            collected.bytes.extend(bytes);
            collected.next += 1;
            collected.newest.position = entry.position;
        }
        let is_complete = |collected: &mut Collected<A>| collected.next == header.parts;
        if let Some(collected) = self.collected.take_if(is_complete) {
            ready.extend(collected.held);
            let content = Content::Group(collected.bytes.into());
            ready.push(Queued { entry: Entry { position: entry.position, content }, answers });
        }
    }

    /// Gives up the collected parts. Their last position counts as applied, like a blank entry.
    fn discard(&mut self, ready: &mut Vec<Queued<A>>) {
        if let Some(collected) = self.collected.take() {
            let newest = collected.held.last().map(|held| held.entry.position);
            ready.extend(collected.held);
            if newest < Some(collected.newest.position) {
                ready.push(blank(collected.newest.position));
            }
        }
    }

    /// Forgets the collected parts, because a snapshot replaces the state.
    pub(crate) fn clear(&mut self) {
        self.collected = None;
    }
}

/// An entry whose answers no caller waits for.
fn blank<A>(position: crate::types::LogId) -> Queued<A> {
    Queued { entry: Entry { position, content: Content::Blank }, answers: oneshot::channel().0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::log_id;
    use crate::types::NodeId;

    struct Feed {
        assembler: Assembler<()>,
        index: u64,
    }

    impl Feed {
        fn new() -> Self {
            Self { assembler: Assembler::new(), index: 0 }
        }

        /// Returns what becomes ready, and the receiver of the answers.
        fn push(&mut self, term: u64, content: Content) -> (Vec<Entry>, oneshot::Receiver<Answers<()>>) {
            self.index += 1;
            let (answers, receiver) = oneshot::channel();
            let entry = Entry { position: log_id(term, NodeId(1), self.index), content };
            let mut ready = Vec::new();
            self.assembler.push(Queued { entry, answers }, &mut ready).unwrap();
            (ready.into_iter().map(|queued| queued.entry).collect(), receiver)
        }
    }

    fn group(length: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length).map(|byte| (byte % 251) as u8).collect();
        bytes[..2].copy_from_slice(&[1, 0]);
        bytes
    }

    fn parts(length: usize) -> Vec<Content> {
        split(group(length), 9, 100).into_iter().map(Content::Group).collect()
    }

    #[test]
    fn a_small_group_is_one_entry() {
        assert_eq!(split(group(100), 9, 100), [Arc::from(group(100))]);
        let mut feed = Feed::new();
        let content = Content::Group(group(100).into());
        let (ready, _) = feed.push(1, content.clone());
        assert_eq!(ready, [Entry { position: log_id(1, NodeId(1), 1), content }]);
    }

    #[test]
    fn parts_are_joined_and_memberships_between_them_wait() {
        let mut feed = Feed::new();
        let [first, second, third] = parts(250).try_into().unwrap();
        assert_eq!(feed.push(1, first).0, []);
        let membership = Content::Membership(Arc::from(*b"members"));
        assert_eq!(feed.push(1, membership.clone()).0, []);
        assert_eq!(feed.push(1, second).0, []);
        let (ready, _) = feed.push(1, third);
        let joined = Content::Group(group(250).into());
        let entry = |index, content| Entry { position: log_id(1, NodeId(1), index), content };
        assert_eq!(ready, [entry(2, membership), entry(4, joined)]);
    }

    #[test]
    fn parts_of_a_deposed_leader_are_discarded() {
        let mut feed = Feed::new();
        let [first, second, third] = parts(250).try_into().unwrap();
        feed.push(1, first);
        feed.push(1, second);
        let blank = |term, index| Entry { position: log_id(term, NodeId(1), index), content: Content::Blank };
        assert_eq!(feed.push(2, Content::Blank).0, [blank(1, 2), blank(2, 3)]);
        let (ready, mut answers) = feed.push(2, third);
        assert_eq!(ready, [blank(2, 4)]);
        assert_eq!(answers.try_recv(), Ok(Err(Discarded)));
    }

    #[test]
    fn a_part_of_an_unknown_format_is_never_skipped() {
        let (answers, _) = oneshot::channel();
        let entry =
            Entry { position: log_id(1, NodeId(1), 1), content: Content::Group(Arc::from([2, 1, 0, 0])) };
        let mut assembler = Assembler::<()>::new();
        assert!(assembler.push(Queued { entry, answers }, &mut Vec::new()).is_err());
    }
}
