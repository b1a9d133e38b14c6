//! Controls of objects.

use super::super::abi::controls::{
    ArchInfo, ClassList, ControlParams, CopyCaps, CopyUnits, DisableChannels, Engines, FbInfo, GpcMask,
    GroupPreempt, GroupSchedule, GroupTimeslice, HandleInfo, IdInfo, NameString, TpcMask, WorkSubmitToken,
};
use super::super::abi::{Handle, RmStatus};
use super::super::kernel::CallError;
use super::state::{State, answer, params, refuse};

impl State {
    /// A control of an object. Unknown ones are accepted and do nothing.
    pub(super) fn control(
        &mut self,
        object: Handle,
        command: u32,
        bytes: &mut [u8],
    ) -> Result<(), CallError> {
        if !self.objects.contains_key(&object) {
            return refuse(RmStatus::ERR_OBJECT_NOT_FOUND);
        }
        match command {
            IdInfo::COMMAND => Ok(()),
            GroupPreempt::COMMAND if self.clings && bytes.first() == Some(&1) => {
                refuse(RmStatus::ERR_TIMEOUT)
            }
            NameString::COMMAND => {
                let mut name = NameString::default();
                name.name[..11].copy_from_slice(b"NVIDIA H200");
                answer(&name, bytes);
                Ok(())
            }
            ArchInfo::COMMAND => {
                answer(&ArchInfo { architecture: self.architecture, ..Default::default() }, bytes);
                Ok(())
            }
            ClassList::COMMAND => {
                let mut list =
                    ClassList { count: u32::try_from(self.classes.len()).unwrap(), ..Default::default() };
                list.list[..self.classes.len()].copy_from_slice(&self.classes);
                answer(&list, bytes);
                Ok(())
            }
            FbInfo::COMMAND => {
                let mut info: FbInfo = params(bytes)?;
                let free = u32::try_from(self.vram_free >> 10).unwrap();
                info.list.iter_mut().for_each(|question| question.data = free);
                answer(&info, bytes);
                Ok(())
            }
            // Three graphics processing clusters, of which the second is switched off.
            GpcMask::COMMAND => {
                answer(&GpcMask { gpcs: 0b101, ..Default::default() }, bytes);
                Ok(())
            }
            TpcMask::COMMAND => {
                let mut mask: TpcMask = params(bytes)?;
                mask.tpcs = if mask.gpc == 0 { 0x1ff } else { 0xfd };
                answer(&mask, bytes);
                Ok(())
            }
            Engines::COMMAND => {
                let count = self.engines.len();
                let mut engines = Engines { count: u32::try_from(count).unwrap(), ..Default::default() };
                engines.list[..count].copy_from_slice(&self.engines);
                answer(&engines, bytes);
                Ok(())
            }
            CopyCaps::COMMAND => {
                let mut caps: CopyCaps = params(bytes)?;
                caps.caps = [u8::from(caps.engine <= 10), 0];
                answer(&caps, bytes);
                Ok(())
            }
            CopyUnits::COMMAND => {
                let mut units: CopyUnits = params(bytes)?;
                units.mask = if units.engine == 13 { 0x3f0 } else { 1 };
                answer(&units, bytes);
                Ok(())
            }
            HandleInfo::COMMAND => {
                let info: HandleInfo = params(bytes)?;
                if self.objects.contains_key(&info.object) {
                    Ok(())
                } else {
                    refuse(RmStatus::ERR_OBJECT_NOT_FOUND)
                }
            }
            GroupTimeslice::COMMAND => {
                self.slices.push(params::<GroupTimeslice>(bytes)?.micros);
                Ok(())
            }
            GroupSchedule::COMMAND => {
                self.scheduled.push(object);
                // It enables all channels of the group.
                let Self { objects, disabled, .. } = self;
                disabled.retain(|channel| objects.get(channel).is_none_or(|known| known.parent != object));
                Ok(())
            }
            WorkSubmitToken::COMMAND => {
                let group = self.objects.get(&object).map(|o| o.parent);
                if !group.is_some_and(|group| self.scheduled.contains(&group)) {
                    return refuse(RmStatus::ERR_INVALID_STATE);
                }
                answer(&WorkSubmitToken { token: object.0 & 0xffff }, bytes);
                Ok(())
            }
            DisableChannels::COMMAND => {
                let call: DisableChannels = params(bytes)?;
                let count = usize::try_from(call.count).unwrap();
                for channel in call.channels.into_iter().take(count) {
                    if !self.objects.contains_key(&channel) {
                        return refuse(RmStatus::ERR_INVALID_OBJECT_HANDLE);
                    }
                    self.disabled.retain(|disabled| *disabled != channel);
                    if call.disable != 0 {
                        self.disabled.push(channel);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
