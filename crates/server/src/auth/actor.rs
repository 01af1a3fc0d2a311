//! The caller of a request, with the action that the request takes.

use std::ops::Deref;

use access::{Denied, Identity, IdentityKind, Namespaces, Object, Resource, Verb};

use crate::audit::Note;

/// Caller of a request: its identity, and the right that its route requires.
///
/// The gate in front of a handler has checked only that the caller has the right in some namespace. The handler knows
/// the namespace of the object, and checks it here.
#[derive(Debug, Clone)]
pub struct Actor {
    identity: Identity,
    verb: Verb,
    resource: Resource,
    needs_right: bool,
    note: Note,
}

impl Actor {
    /// Creates the caller of a request whose route requires the right to do `verb` to `resource`.
    pub fn new(identity: Identity, verb: Verb, resource: Resource) -> Self {
        Self { identity, verb, resource, needs_right: true, note: Note::default() }
    }

    /// Creates the caller of a request that needs no right.
    pub fn without_right(identity: Identity) -> Self {
        let (verb, resource) = (Verb::Read, Resource::Server);
        Self { identity, verb, resource, needs_right: false, note: Note::default() }
    }

    /// Shares the facts for the audit log with the entry of the request.
    #[must_use]
    pub fn with_note(self, note: Note) -> Self {
        Self { note, ..self }
    }

    /// Returns the facts for the audit log. A checked namespace is one of them.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// Returns the identity of the caller.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Checks that the route is open to the caller: for a resource in namespaces, in at least one of them.
    ///
    /// # Errors
    /// [`Denied`]
    pub fn check_route(&self) -> Result<(), Denied> {
        match self.resource.is_namespaced() {
            _ if !self.needs_right && self.kind != IdentityKind::Worker => Ok(()),
            true => self.identity.anywhere(self.verb, self.resource).inspect_err(|denied| self.log(denied)),
            false => self.check_cluster(),
        }
    }

    /// Checks the right in a namespace.
    ///
    /// # Errors
    /// [`Denied`]
    pub fn check(&self, namespace: &str) -> Result<(), Denied> {
        self.check_on(self.resource, namespace)
    }

    /// Checks the right to do the same to another kind of resource, in a namespace.
    ///
    /// # Errors
    /// [`Denied`]
    pub fn check_on(&self, resource: Resource, namespace: &str) -> Result<(), Denied> {
        self.note.namespace(namespace);
        let object = Object { resource, namespace: Some(namespace) };
        self.identity.decide(self.verb, object).inspect_err(|denied| self.log(denied))
    }

    /// Checks the right in all namespaces and on the cluster itself.
    ///
    /// # Errors
    /// [`Denied`]
    pub fn check_cluster(&self) -> Result<(), Denied> {
        let object = Object { resource: self.resource, namespace: None };
        self.identity.decide(self.verb, object).inspect_err(|denied| self.log(denied))
    }

    /// Returns whether the caller has the right in a namespace.
    pub fn may(&self, namespace: &str) -> bool {
        let object = Object { resource: self.resource, namespace: Some(namespace) };
        self.identity.decide(self.verb, object).is_ok()
    }

    fn log(&self, denied: &Denied) {
        tracing::warn!(error = %denied, token_id = %self.token_id, "request refused");
    }

    /// Returns whether the caller may read resources of this kind in a namespace. If not, they do not exist for it.
    pub fn can_read(&self, namespace: &str) -> bool {
        let object = Object { resource: self.resource, namespace: Some(namespace) };
        self.identity.decide(Verb::Read, object).is_ok()
    }

    /// Returns whether the caller may do something else to resources of this kind in a namespace.
    pub fn may_also(&self, verb: Verb, namespace: &str) -> bool {
        let object = Object { resource: self.resource, namespace: Some(namespace) };
        self.identity.decide(verb, object).is_ok()
    }

    /// Returns whether the caller is an account, with or without a token.
    pub fn is_account(&self) -> bool {
        matches!(self.kind, IdentityKind::User | IdentityKind::Service)
    }

    /// Returns whether the caller may do something in all namespaces and on the cluster itself.
    pub fn may_on_cluster(&self, verb: Verb, resource: Resource) -> bool {
        self.identity.decide(verb, Object { resource, namespace: None }).is_ok()
    }

    /// Returns the namespaces in which the caller has the right.
    pub fn namespaces(&self) -> Namespaces {
        self.identity.namespaces(self.verb, self.resource)
    }

    /// Returns whether the namespace of an object must be looked up: to check the right there, or for the audit log.
    pub fn needs_namespace(&self) -> bool {
        self.verb != Verb::Read || !self.is_unrestricted()
    }

    /// Returns whether the caller has the right in all namespaces, so that objects need not be looked up to check it.
    pub fn is_unrestricted(&self) -> bool {
        self.may_on_cluster(self.verb, self.resource)
    }
}

impl Deref for Actor {
    type Target = Identity;

    fn deref(&self) -> &Identity {
        &self.identity
    }
}
