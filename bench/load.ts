import { type Connection, openConnection } from './connection.ts'
import { watchForOutage } from './outage.ts'
import { eventIdOf, type RequestMaker, requestMaker } from './requests.ts'
import { quantile } from './statistics.ts'

// The load, in a process of its own: it works on one order at a time and answers with what it has measured.

/** What the requests of a run are. */
export type Kind = 'new' | 'duplicates' | 'forged' | 'large'

export interface Order {
  port: number
  /** Whose events are delivered again. */
  candidate: string
  kind: Kind
  connections: number
  seconds: number
  /** Every hundredth event is of another type. */
  rare: boolean
  /** The IDs of acknowledged events are wanted. */
  wantsIds?: boolean
  /** PostgreSQL is restarted in the middle: says when that is, and opens broken connections again. */
  withRestart?: boolean
}

export interface Measured {
  /** Answers a second. */
  rate: number
  p50: number
  p99: number
  /** Answers by status; 0 is a connection that broke. All of them, those after the end of the time too. */
  statuses: Record<number, number>
  /** New events that were answered 2xx. */
  acked: number
  /** The IDs of all events that were answered 2xx, redeliveries too, where they are wanted. */
  ids: string[]
  /** From the restart in the middle to the first ack after it; NaN where none came within the time. */
  secondsUntilBack: number
}

const SMALL = 2_048
const LARGE = 65_536
const MOST_BYTES_PREPARED = 128 * 1024 * 1024
const KEPT = 4_000
const REOPEN_AFTER_MS = 20

const kept = new Map<string, Buffer[]>()

process.once('disconnect', () => process.exit())
process.send?.({ ready: '' })
process.on('message', (order: Order) => void carryOut(order).then((measured) => process.send?.(measured)))

async function carryOut(order: Order): Promise<Measured> {
  const maker = requestMaker(order.kind === 'large' ? LARGE : SMALL, order)
  if (order.kind !== 'duplicates') return run(order, prepared(order, newOf(order, maker)))
  const before = kept.get(order.candidate)
  const events = before ?? Array.from({ length: KEPT }, maker.next)
  kept.set(order.candidate, events)
  let acked = 0
  let ids: string[] = []
  if (!before) {
    const rest = [...events]
    // As many seconds as it takes: the run ends when there are none left.
    const first = await run({ ...order, seconds: 60 }, () => rest.pop())
    acked = first.acked
    ids = first.ids
  }
  let at = 0
  const again = () => maker.again(events[at++ % events.length] as Buffer) // it is never empty
  const measured = await run(order, prepared(order, again))
  return { ...measured, acked, ids: [...ids, ...measured.ids] }
}

function newOf({ kind }: Order, maker: RequestMaker): () => Buffer {
  if (kind !== 'forged') return maker.next
  let made = 0
  return () => (made++ % 10 === 0 ? maker.forged() : maker.next())
}

/** Makes requests before the time runs, as many as may be needed and fit the memory, so that making them costs nothing in it. */
function prepared({ seconds }: Order, make: () => Buffer): () => Buffer {
  const first = make()
  const count = Math.min(Math.floor(MOST_BYTES_PREPARED / first.length), Math.ceil(seconds * 10_000))
  const ready = [first, ...Array.from({ length: count - 1 }, make)]
  return () => ready.pop() ?? make()
}

/** Keeps each connection busy for the time; what is under way at its end is waited for, but not measured. */
async function run(order: Order, next: () => Buffer | undefined): Promise<Measured> {
  const { port, connections, seconds, wantsIds, withRestart } = order
  const times: number[] = []
  const statuses: Record<number, number> = {}
  const ids: string[] = []
  const started = performance.now()
  const until = started + seconds * 1000
  const outage = withRestart ? watchForOutage(started + seconds * 500) : undefined
  if (withRestart) setTimeout(() => process.send?.('middle'), seconds * 500)
  let lastAt = started
  await Promise.all(
    Array.from(
      { length: connections },
      () =>
        new Promise<void>((done) => {
          let sentAt = 0
          let sent: Buffer
          let connection: Connection
          const open = () => {
            connection = openConnection(
              port,
              ({ status, closes }) => {
                const now = performance.now()
                statuses[status] = (statuses[status] ?? 0) + 1
                if (status === 200) {
                  outage?.acked(now)
                  if (wantsIds) ids.push(eventIdOf(sent))
                }
                if (now <= until) {
                  times.push(now - sentAt)
                  lastAt = now
                }
                if (closes && withRestart) connection.close()
                else sendNext()
              },
              (wasWaiting) => {
                if (wasWaiting) statuses[0] = (statuses[0] ?? 0) + 1
                if (withRestart && performance.now() < until) setTimeout(open, REOPEN_AFTER_MS)
                else done()
              },
            )
            sendNext()
          }
          const sendNext = () => {
            const request = performance.now() < until ? next() : undefined
            if (request === undefined) return connection.close()
            sentAt = performance.now()
            sent = request
            connection.send(request)
          }
          open()
        }),
    ),
  )
  const took = (Math.max(lastAt, Math.min(until, performance.now())) - started) / 1000
  times.sort((a, b) => a - b)
  return {
    rate: times.length / took,
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    statuses,
    acked: statuses[200] ?? 0,
    ids,
    secondsUntilBack: outage?.secondsUntilBack(until) ?? Number.NaN,
  }
}
