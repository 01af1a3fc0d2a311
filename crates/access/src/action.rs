//! The object of an action. The words for actions and resources are in [`model::access`].

pub use model::access::{Resource, Verb};

/// Object of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Object<'a> {
    /// Kind of the object.
    pub resource: Resource,
    /// Namespace of the object; `None` for the whole cluster, for example a list over all namespaces.
    ///
    /// Ignored for resources that have no namespace.
    pub namespace: Option<&'a str>,
}

impl<'a> Object<'a> {
    /// Returns the objects of a kind in one namespace.
    pub const fn in_namespace(resource: Resource, namespace: &'a str) -> Self {
        Self { resource, namespace: Some(namespace) }
    }

    /// Returns the objects of a kind in the whole cluster.
    pub const fn cluster(resource: Resource) -> Object<'static> {
        Object { resource, namespace: None }
    }
}
