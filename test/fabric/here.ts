import { UnavailableError } from '../../src/errors/index.js';
import { libfabricVersion } from '../../src/fabric/index.js';

/** Null where libfabric can be opened. */
export function whyNoFabric(): string | null {
  try {
    libfabricVersion();
    return null;
  } catch (error) {
    if (!(error instanceof UnavailableError)) throw error;
    return error.message;
  }
}
