//! Pages of lists: limits, and cursors that cannot be forged or used with another list.
//!
//! A cursor is opaque: base64url of a MAC and of the last position of a page. The MAC covers the filter of the list, so
//! a cursor with another filter is refused instead of skipping rows. Its key is in the store, so a cursor is valid on
//! every server and after a restart.
//!
//! A caller with rights in some namespaces gets one list of all of them ([`Selection`]), read with one query for each.

use std::cmp::Reverse;

use access::Namespaces;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{StreamExt, TryStreamExt};
use hmac::{Hmac, KeyInit, Mac};
use model::limits::{PAGE_DEFAULT, PAGE_MAX};
use sha2::Sha256;
use store::StoreError;
use store::query::Paged;

use super::problem::{ApiError, Code};
use crate::auth::Actor;

/// 128 bits suffice: a cursor grants no right.
const MAC_LEN: usize = 16;
/// Concurrent queries for a list of several namespaces.
const QUERIES: usize = 8;
/// Longest cursor, in bytes; no valid cursor is longer.
const CURSOR_LEN_MAX: usize = 1_024;

/// Returns the namespace to filter a list by; `*` is any.
pub(super) fn namespace(asked: Option<String>) -> Option<String> {
    asked.filter(|namespace| namespace != "*")
}

/// Namespaces of a list, each for a query of its own: the one that the request names, or all in which the caller has
/// the right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selection(Vec<Option<String>>);

impl Selection {
    /// Selects the namespaces of a list. `asked` is `None` for all namespaces.
    ///
    /// # Errors
    /// `forbidden` if the request names a namespace in which the caller does not have the right.
    pub(super) fn of(actor: &Actor, asked: Option<&str>) -> Result<Self, ApiError> {
        if let Some(namespace) = asked {
            actor.check(namespace)?;
            return Ok(Self(vec![Some(namespace.to_owned())]));
        }
        Ok(Self(match actor.namespaces() {
            Namespaces::All => vec![None],
            Namespaces::Some(names) => names.iter().map(|name| Some(name.to_string())).collect(),
        }))
    }

    /// Returns the namespaces; `None` is any namespace.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&str>> {
        self.0.iter().map(Option::as_deref)
    }

    /// Returns whether an object of this namespace is selected.
    pub(super) fn contains(&self, namespace: &str) -> bool {
        self.iter().any(|selected| selected.is_none_or(|selected| selected == namespace))
    }

    /// Reads one page of a list: the first items of all namespaces, in descending order of `place`.
    pub(super) async fn page<T, F, Place: Ord>(
        &self,
        limit: usize,
        query: impl Fn(Option<String>) -> F,
        place: impl Fn(&T) -> Place,
    ) -> Result<Paged<T>, ApiError>
    where
        F: Future<Output = Result<Paged<T>, StoreError>>,
    {
        if let [one] = &self.0[..] {
            return Ok(query(one.clone()).await?);
        }
        let pages = futures::stream::iter(self.0.iter().cloned().map(query));
        let pages: Vec<_> = pages.buffered(QUERIES).try_collect().await?;
        let mut more = pages.iter().any(|page| page.more);
        let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
        items.sort_by_key(|item| Reverse(place(item)));
        more |= items.len() > limit;
        items.truncate(limit);
        Ok(Paged { items, more })
    }
}

/// Creates and verifies cursors.
#[derive(Clone)]
pub(super) struct Cursors {
    key: [u8; 32],
}

impl Cursors {
    /// Creates it with the key in the store.
    pub(super) fn new(key: [u8; 32]) -> Self {
        Self { key }
    }

    /// Returns the cursor after `place`, for this list and filter.
    pub(super) fn make(&self, list: &str, filter: &impl std::fmt::Debug, place: &str) -> String {
        let mut bytes = self.mac(list, filter, place).to_vec();
        bytes.extend_from_slice(place.as_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Returns the last position of the previous page.
    ///
    /// # Errors
    /// `invalid_cursor` if the cursor was not made for this list and filter with this key.
    pub(super) fn read<T: std::str::FromStr>(
        &self,
        list: &str,
        filter: &impl std::fmt::Debug,
        cursor: Option<&str>,
    ) -> Result<Option<T>, ApiError> {
        let Some(cursor) = cursor else { return Ok(None) };
        let place = self.place(list, filter, cursor);
        let place = place.and_then(|place| place.parse().ok());
        place.map(Some).ok_or_else(|| {
            let detail = "the cursor was made for another list, another filter or another server";
            ApiError::new(Code::InvalidCursor, detail)
        })
    }

    fn place(&self, list: &str, filter: &impl std::fmt::Debug, cursor: &str) -> Option<String> {
        if cursor.len() > CURSOR_LEN_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (mac, place) = bytes.split_first_chunk::<MAC_LEN>()?;
        let place = str::from_utf8(place).ok()?;
        let same = subtle::ConstantTimeEq::ct_eq(mac.as_slice(), self.mac(list, filter, place).as_slice());
        bool::from(same).then(|| place.to_owned())
    }

    fn mac(&self, list: &str, filter: &impl std::fmt::Debug, place: &str) -> [u8; MAC_LEN] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a MAC takes a key of any length");
        // Debug output quotes strings, so different filters have different texts. It may change with a program version,
        // because cursors are short-lived.
        mac.update(format!("{list}\0{filter:?}\0{place}").as_bytes());
        let whole = mac.finalize().into_bytes();
        let mut short = [0; MAC_LEN];
        short.copy_from_slice(&whole[..MAC_LEN]);
        short
    }
}

impl std::fmt::Debug for Cursors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cursors")
    }
}

/// Returns the number of items in a page.
///
/// # Errors
/// `invalid_parameter` if it is zero or more than [`PAGE_MAX`].
pub(super) fn limit(asked: Option<u32>) -> Result<usize, ApiError> {
    match asked {
        None => Ok(PAGE_DEFAULT),
        Some(limit) if (1..=PAGE_MAX).contains(&(limit as usize)) => Ok(limit as usize),
        Some(limit) => {
            Err(ApiError::parameter("limit", format!("`{limit}` is out of range: expected 1 to {PAGE_MAX}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use model::JobId;

    use super::*;

    fn cursors() -> Cursors {
        Cursors::new([7; 32])
    }

    #[test]
    fn a_cursor_returns_to_its_position() {
        let id = JobId::from_bits(42);
        let cursor = cursors().make("jobs", &"filter", &id.to_string());
        assert_eq!(cursors().read("jobs", &"filter", Some(&cursor)), Ok(Some(id)));
        assert_eq!(cursors().read::<JobId>("jobs", &"filter", None), Ok(None));
    }

    #[test]
    fn a_cursor_of_another_list_filter_or_server_is_refused() {
        let cursor = cursors().make("jobs", &"a", "job_00000000000000000000000001");
        let refused = |cursors: Cursors, list: &str, filter: &str, cursor: &str| {
            let place = cursors.read::<JobId>(list, &filter, Some(cursor));
            place.unwrap_err().code() == Code::InvalidCursor
        };
        assert!(refused(cursors(), "jobs", "b", &cursor));
        assert!(refused(cursors(), "executions", "a", &cursor));
        assert!(refused(Cursors::new([8; 32]), "jobs", "a", &cursor));
        for text in ["", "AAAA", "ä", &cursor[1..], &"A".repeat(5_000)] {
            assert!(refused(cursors(), "jobs", "a", text), "{text}");
        }
    }

    #[test]
    fn the_size_of_a_page_is_bounded() {
        assert_eq!(limit(None), Ok(PAGE_DEFAULT));
        let most = u32::try_from(PAGE_MAX).unwrap();
        assert_eq!(limit(Some(most)), Ok(PAGE_MAX));
        assert!(limit(Some(0)).is_err() && limit(Some(most + 1)).is_err());
    }
}
