//! Capabilities: the first process has all of its user namespace, and the programs of the job have none.

use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits, set_no_new_privs,
};

use crate::error::{SandboxError, Step as _};

/// Drops all capabilities for good, also for programs that run as root.
pub(crate) fn drop_all() -> Result<(), SandboxError> {
    let step = "drop its capabilities";
    set_no_new_privs(true).step(step)?;
    // Without these bits, `exec` as user 0 would grant all capabilities again.
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    set_capabilities_secure_bits(locked).step(step)?;
    clear_ambient_capability_set().step(step)?;
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            // The kernel does not know this number: it is the end of its list.
            Err(rustix::io::Errno::INVAL) => break,
            removed => removed.step(step)?,
        }
    }
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none }).step(step)
}
