//! The steps of a boot that need memory or GSP, of either flow. A flow's units have asked for them by a
//! register write, and hear how they ended.

use super::super::boot::falcons::{
    self, Data, Description, FalconError, Transfer, Wpr2, read_region, write_region,
};
use super::super::boot::{BootRefusal, GspArguments, Request};
use super::super::locked;
use super::{Core, Processor};
use gpuvmk_backend::GspBackend;
use gpuvmk_gsp::{BootError, Gsp};

impl<B: GspBackend> Core<B> {
    /// Carries out what a boot flow asks for.
    pub fn boot(&self, back: &B, request: Request) {
        match request {
            Request::Fsp { parameters } => self.boot_by_fsp(back, parameters),
            Request::Falcons(request) => {
                if let Err(error) = self.boot_by_falcons(back, request) {
                    self.boot_log.refused(self.face.now(), &BootRefusal::from(error));
                }
            }
        }
        self.face.counters_changed.note();
        self.deliver();
    }

    /// FSP was asked to boot GSP with the parameters at that bus address.
    fn boot_by_fsp(&self, back: &B, parameters: u64) {
        let result = self.with_gsp(back, |processor| {
            let arguments = GspArguments::of_fmc(back, parameters)?;
            Ok(self.start(back, &mut processor.gsp, arguments)?)
        });
        if let Err(error) = result {
            self.boot_log.refused(self.face.now(), &format_args!("FSP does not boot GSP: {error}"));
        }
        self.face.lock().fsp_booted(result);
    }

    fn boot_by_falcons(&self, back: &B, request: falcons::Request) -> Result<(), FalconError> {
        match request {
            falcons::Request::Load(transfer) => self.load(back, &transfer),
            falcons::Request::Fwsec(data) => self.fwsec(back, data),
            falcons::Request::Boot { arguments, description, region } => {
                let arguments = GspArguments { arguments, description };
                let result = self.with_gsp(back, |processor| self.booter(back, processor, arguments, region));
                self.face.lock().falcons(|falcons, _, _| {
                    falcons.booted(result);
                    result.map(drop)
                })
            }
            falcons::Request::Unload { description, region } => {
                let kept = self.with_gsp(back, |processor| processor.gsp.keep(back, description));
                let kept = kept.map_err(|error| BootError::from(error).into());
                let result = kept.and_then(|()| write_region(back, description, region));
                self.face.lock().falcons(|falcons, _, _| {
                    falcons.unloaded(result);
                    result
                })
            }
            falcons::Request::Stop => {
                self.with_gsp(back, |processor| {
                    let effects = processor.gsp.stop(back);
                    self.apply(back, &effects);
                });
                // Nothing is left of the firmware, not even that it has ended.
                self.face.lock().falcons(|_, gsp, _| {
                    gsp.reset();
                    Ok(())
                })
            }
        }
    }

    /// A falcon's DMA reads firmware.
    fn load(&self, back: &B, transfer: &Transfer) -> Result<(), FalconError> {
        let mut data = vec![0; transfer.size];
        let read = back.read_memory(transfer.source, &mut data);
        self.face.lock().falcons(|falcons, _, _| {
            read.map_err(|_| no_memory("a falcon's firmware", transfer.source.address))?;
            falcons.load(transfer, &data);
            Ok(())
        })
    }

    /// FWSEC's bootloader reads its data, and FWSEC runs.
    fn fwsec(&self, back: &B, data: Data) -> Result<(), FalconError> {
        let mut bytes = vec![0; data.size];
        let read = back.read_memory(data.source, &mut bytes);
        let read =
            read.map_err(|_| no_memory("FWSEC's data", data.source.address)).map(|()| bytes.as_slice());
        self.face.lock().falcons(|falcons, gsp, vram| falcons.fwsec(read, gsp, vram))
    }

    /// The booter loads GSP in a region that FWSEC has set up, or restores the region of a suspended one and
    /// lets that go on. The region in which it runs.
    fn booter(
        &self,
        back: &B,
        processor: &mut Processor<B>,
        arguments: GspArguments,
        region: Wpr2,
    ) -> Result<Wpr2, FalconError> {
        let region = if Gsp::is_suspended_at(back, arguments.description) {
            read_region(back, arguments.description)?
        } else if region.is_set() {
            let description = Description::read(back, arguments.description)?;
            description.complete(back, processor.gsp.saved_room())?;
            processor.gsp.set_non_wpr_heap(description.non_wpr_heap());
            region
        } else {
            return Err(FalconError::NoRegion("the booter"));
        };
        self.start(back, &mut processor.gsp, arguments)?;
        Ok(region)
    }

    /// Boots GSP, or lets it go on where it was suspended. Every boot flow ends here.
    fn start(&self, back: &B, gsp: &mut Gsp, arguments: GspArguments) -> Result<(), BootError> {
        let GspArguments { arguments, description } = arguments;
        let effects = if Gsp::is_suspended_at(back, description) {
            gsp.resume(back, description)?
        } else {
            gsp.boot(back, arguments)?
        };
        self.apply(back, &effects);
        Ok(())
    }

    fn with_gsp<R>(&self, back: &B, with: impl FnOnce(&mut Processor<B>) -> R) -> R {
        let mut processor = locked(&self.processor);
        let result = with(&mut processor);
        self.finish(back, &mut processor);
        result
    }
}

const fn no_memory(what: &'static str, address: u64) -> FalconError {
    FalconError::NoMemory { what, address }
}
