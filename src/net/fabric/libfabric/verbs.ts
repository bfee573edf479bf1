/** libibverbs, as far as it is asked what RDMA devices there are. */
import { valueOr } from '../../../base/errors.js';
import { openLibrary, readAddress, readString } from '../../../base/native/index.js';

/** The names of the verbs devices; null where there is no libibverbs. */
export function verbsDevices(): readonly string[] | null {
  const names: string[] = [];
  return visitDevices((_, __, name) => names.push(name)) ? names : null;
}

/** Calls `visit` for each verbs device; false where there is no libibverbs. */
export function visitDevices(visit: (verbs: Verbs, device: number, name: string) => void): boolean {
  const verbs = valueOr(null, openVerbs);
  if (verbs === null) return false;
  const count = new Int32Array(1);
  const list = verbs.ibv_get_device_list(count);
  for (let i = 0; list !== 0 && i < count[0]!; i++) {
    const device = readAddress(list + 8 * i);
    visit(verbs, device, readString(verbs.ibv_get_device_name(device)) ?? '');
  }
  if (list !== 0) verbs.ibv_free_device_list(list);
  return true;
}

type Verbs = ReturnType<typeof openVerbs>;

const openVerbs = () =>
  openLibrary(['libibverbs.so.1'], '').functions({
    ibv_get_device_list: ['address', 'buffer'],
    ibv_free_device_list: ['void', 'address'],
    ibv_get_device_name: ['address', 'address'],
    ibv_open_device: ['address', 'address'],
    ibv_query_device: ['i32', 'address', 'buffer'],
    ibv_close_device: ['i32', 'address'],
  });
