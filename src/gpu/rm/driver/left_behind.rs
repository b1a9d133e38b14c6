//! Tenants' objects that are there although no tenant is.

use super::RmDriver;
use crate::GpuError;
use crate::rm::abi::classes::{
    Class, FERMI_VASPACE_A, KEPLER_CHANNEL_GROUP_A, NV01_MEMORY_SYSTEM, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR,
    Role,
};

/// Classes that only channels, address spaces and memory of tenants have (and the worker), beside those of
/// channels.
const TENANT_CLASSES: [Class; 4] =
    [FERMI_VASPACE_A, KEPLER_CHANNEL_GROUP_A, NV01_MEMORY_SYSTEM, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR];

/// True for a class that only tenants and the worker have objects of.
fn is_tenants(class: Class) -> bool {
    class.role == Role::Channel || TENANT_CLASSES.contains(&class)
}

impl RmDriver {
    /// Tenants' objects that are there although no tenant has channels or spaces: by our books, and by the
    /// NVIDIA driver's own. Memory ranges count as long as they are announced.
    ///
    /// # Errors
    /// The driver refuses to say.
    pub fn left_behind(&self) -> Result<Vec<String>, GpuError> {
        if self.channels.any() || !self.spaces.is_empty() {
            return Ok(Vec::new());
        }
        let mut own = self.cleaner.objects();
        own.extend(self.vram.objects());
        own.extend(self.system.own_objects());
        let mut left: Vec<String> = self
            .device
            .client
            .objects()
            .filter(|(handle, object)| is_tenants(object.class) && !own.contains(handle))
            .map(|(handle, object)| format!("{} {handle}", object.class.name))
            .collect();
        left.extend(self.not_freed()?);
        Ok(left)
    }

    /// Objects that were freed lately and that the NVIDIA driver's own list has all the same.
    pub(super) fn not_freed(&self) -> Result<Vec<String>, GpuError> {
        let client = &self.device.client;
        let mut left = Vec::new();
        for handle in client.freed() {
            if client.has_object(handle)? {
                left.push(format!("object {handle}, by the driver's list"));
            }
        }
        Ok(left)
    }
}
