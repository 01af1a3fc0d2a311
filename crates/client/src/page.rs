//! Lists, page by page or as one stream.

use std::collections::VecDeque;

use futures::stream::{self, BoxStream, StreamExt};
use model::api::List;

use crate::error::Error;

/// Which page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The most items on it; the server's default where absent.
    pub limit: Option<usize>,
    /// Where it begins: the `next_cursor` of the page before.
    pub cursor: Option<String>,
}

/// A stream that can be polled as it is; it ends behind its first error.
pub type Items<T> = BoxStream<'static, Result<T, Error>>;

/// All items of a list as one stream; a page is fetched when the one before is used up.
pub(crate) fn all<T, F>(fetch: impl Fn(Page) -> F + Send + 'static) -> Items<T>
where
    T: Send + 'static,
    F: Future<Output = Result<List<T>, Error>> + Send + 'static,
{
    enum Next {
        Page(Page),
        Nothing,
    }
    let start = (VecDeque::new(), Next::Page(Page::default()), fetch);
    stream::try_unfold(start, |(mut items, mut next, fetch)| async move {
        loop {
            if let Some(item) = items.pop_front() {
                return Ok(Some((item, (items, next, fetch))));
            }
            let Next::Page(page) = next else { return Ok(None) };
            let list: List<T> = fetch(page).await?;
            items.extend(list.items);
            next = match list.next_cursor {
                Some(cursor) => Next::Page(Page { limit: None, cursor: Some(cursor) }),
                None => Next::Nothing,
            };
        }
    })
    .boxed()
}
