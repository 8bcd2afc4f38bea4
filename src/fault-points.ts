/**
 * The places in the code at which tests end or stop a process, to see that nothing is lost and nothing is sent twice whatever
 * happens there. Where a commit is on its way no code runs: tests cut the line to the database instead.
 */
export const faultPoints = [
  'ingest.read',
  'ingest.verified',
  'ingest.committed',
  'ingest.acked',
  'job.fetched',
  'job.before_complete',
  'send.before_claim',
  'send.claimed',
  'send.response_received',
  'send.recorded',
  'settle.locked',
  'parked.rescan',
] as const
export type FaultPoint = (typeof faultPoints)[number]

/** What a test wants to happen at a place; what it throws is thrown there. */
export type Fault = (point: FaultPoint) => void | Promise<void>

const armed = new Map<FaultPoint, Fault>()

/** Marks a place. It does nothing, unless a test has armed it. */
export function reached(point: FaultPoint): void | Promise<void> {
  if (armed.size > 0) return armed.get(point)?.(point)
}

/** Arms a place of this process until it is disarmed. */
export function armFault(point: FaultPoint, fault: Fault): { disarm(): void } {
  armed.set(point, fault)
  return { disarm: () => void armed.delete(point) }
}

/** What the variable `ONCEHOOK_FAULTS` can say: at which places a process is killed, has an error, or stands still. */
const faultsByName = {
  kill: () => void process.kill(process.pid, 'SIGKILL'),
  throw: (point) => {
    throw new Error(`fault at ${point}`)
  },
  stop: () => void process.kill(process.pid, 'SIGSTOP'),
} as const satisfies Record<string, Fault>
export type FaultName = keyof typeof faultsByName

/** The places and faults of a text such as `send.claimed=kill,ingest.committed=throw`; undefined where it can't be read. */
export function readFaults(text: string): ReadonlyMap<FaultPoint, FaultName> | undefined {
  const faults = new Map<FaultPoint, FaultName>()
  for (const one of text.split(',')) {
    const [name, what, ...more] = one.trim().split('=')
    const point = faultPoints.find((each) => each === name)
    if (!point || !what || more.length > 0 || !isFaultName(what)) return undefined
    faults.set(point, what)
  }
  return faults
}

const isFaultName = (text: string): text is FaultName => Object.hasOwn(faultsByName, text)

/** Arms what the environment of this process says. */
export function armFaults(faults: ReadonlyMap<FaultPoint, FaultName>): void {
  for (const [point, name] of faults) armFault(point, faultsByName[name])
}
