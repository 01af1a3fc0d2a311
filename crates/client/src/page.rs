//! Pages of lists, and streams over all pages.

use std::collections::VecDeque;

use futures::stream::{self, BoxStream, StreamExt};
use model::api::List;

use crate::error::Error;

/// Page of a list. The default is the first page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Maximum number of items; `None` for the default of the server.
    pub limit: Option<usize>,
    /// Cursor of the page: the `next_cursor` of the previous page.
    pub cursor: Option<String>,
}

/// Boxed stream of items. It ends after its first error.
pub type Items<T> = BoxStream<'static, Result<T, Error>>;

/// Streams all items of a list. A page is fetched when the items of the previous page are consumed.
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
