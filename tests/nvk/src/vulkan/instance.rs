//! The Vulkan loader and the GPUs that its drivers list.
#![allow(unsafe_code, reason = "Vulkan's functions are unsafe to call")]

use std::ffi::CStr;
use std::rc::Rc;

use anyhow::{Context, Result};
use ash::vk;

/// Vulkan, loaded.
pub struct Instance {
    /// Holds the library that `raw` calls into.
    _entry: ash::Entry,
    pub(super) raw: ash::Instance,
}

/// A GPU as its driver describes it.
#[derive(Debug, Clone)]
pub struct Gpu {
    pub(super) handle: vk::PhysicalDevice,
    /// The device's name.
    pub name: String,
    /// The driver's name and version.
    pub driver: String,
    /// `vendor:device` of the PCI device.
    pub pci: String,
    /// The highest Vulkan version it offers.
    pub vulkan: String,
    /// Nanoseconds of a tick of its timestamps.
    pub timestamp_ns: f32,
}

impl Instance {
    /// Loads libvulkan and makes an instance.
    pub fn create() -> Result<Rc<Self>> {
        // SAFETY: the library is the Vulkan loader, whose initialisers have no requirements.
        let entry = unsafe { ash::Entry::load() }.context("libvulkan.so.1 cannot be loaded")?;
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_2);
        let info = vk::InstanceCreateInfo::default().application_info(&application);
        // SAFETY: the structures live through the call, and the instance is destroyed before `_entry` goes.
        let raw = unsafe { entry.create_instance(&info, None) }.context("vkCreateInstance")?;
        Ok(Rc::new(Self { _entry: entry, raw }))
    }

    /// Every GPU that the drivers list.
    pub fn gpus(&self) -> Result<Vec<Gpu>> {
        // SAFETY: the instance is valid as long as `self` is.
        let handles =
            unsafe { self.raw.enumerate_physical_devices() }.context("vkEnumeratePhysicalDevices")?;
        Ok(handles.into_iter().map(|handle| self.describe(handle)).collect())
    }

    fn describe(&self, handle: vk::PhysicalDevice) -> Gpu {
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
        // SAFETY: the handle is of this instance; the chained structure lives through the call.
        unsafe { self.raw.get_physical_device_properties2(handle, &mut all) };
        let properties = all.properties;
        let version = properties.api_version;
        Gpu {
            handle,
            name: text(properties.device_name_as_c_str()),
            driver: format!(
                "{} {}",
                text(driver.driver_name_as_c_str()),
                text(driver.driver_info_as_c_str())
            ),
            pci: format!("{:04x}:{:04x}", properties.vendor_id, properties.device_id),
            vulkan: format!(
                "{}.{}.{}",
                vk::api_version_major(version),
                vk::api_version_minor(version),
                vk::api_version_patch(version)
            ),
            timestamp_ns: properties.limits.timestamp_period,
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // SAFETY: devices hold a reference to the instance, so none is left.
        unsafe { self.raw.destroy_instance(None) };
    }
}

fn text<E>(name: std::result::Result<&CStr, E>) -> String {
    name.map_or_else(|_| "?".to_owned(), |name| name.to_string_lossy().trim().to_owned())
}
