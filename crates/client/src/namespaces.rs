//! Requests about namespaces: their quotas and usage.

use model::api::{List, Namespace};
use model::namespace::NamespaceSettings;

use crate::error::Error;
use crate::http::{Client, Request};
use crate::page::{self, Items, Page};

impl Client {
    /// Returns one page of namespaces.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors).
    pub async fn namespaces_page(&self, page: &Page) -> Result<List<Namespace>, Error> {
        self.json(Request::get(["namespaces"]).page(page)).await
    }

    /// Streams all namespaces.
    pub fn namespaces(&self) -> Items<Namespace> {
        let client = self.clone();
        page::all(move |page| {
            let client = client.clone();
            async move { client.namespaces_page(&page).await }
        })
    }

    /// Returns a namespace.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `namespace_not_found`.
    pub async fn namespace(&self, name: &str) -> Result<Namespace, Error> {
        self.json(Request::get(["namespaces", name])).await
    }

    /// Creates the settings of a namespace, or replaces all of them.
    ///
    /// With `version`, the request fails unless the stored namespace has this version; `Some(0)` requires that it has no
    /// settings.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `invalid_spec` and `version_mismatch`.
    pub async fn set_namespace(
        &self,
        name: &str,
        settings: &NamespaceSettings,
        version: Option<u64>,
    ) -> Result<Namespace, Error> {
        let request = Request::put(["namespaces", name]).json(settings);
        self.json(match version {
            Some(0) => request.header("if-none-match", "*").once(),
            version => request.if_match(version),
        })
        .await
    }

    /// Deletes the settings of a namespace: its jobs have no limits then.
    ///
    /// # Errors
    /// [Request errors](crate#request-errors), among them `namespace_not_found`.
    pub async fn delete_namespace(&self, name: &str) -> Result<(), Error> {
        self.send_ignoring_body(Request::delete(["namespaces", name])).await
    }
}
