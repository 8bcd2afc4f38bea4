import { type Connection, openConnection } from './connection.ts'
import { watchForOutage } from './outage.ts'
import { eventIdOf, requestMaker } from './requests.ts'
import { quantile } from './statistics.ts'

// Posts at a rate that doesn't care whether answers come, as the whole world does: in a process of its own, an order at a time.

export interface Rush {
  port: number
  /** Requests a second, for how long. */
  rate: number
  seconds: number
  /** Connections that it may open; a request that finds none of them idle is not sent. */
  connections: number
  /** The IDs of acknowledged events are wanted. */
  wantsIds?: boolean
  /** PostgreSQL is restarted in the middle: says when that is. */
  withRestart?: boolean
}

export interface Rushed {
  /** Requests that were due in the time. */
  due: number
  acked: number
  refused: number
  /** Other answers, and connections that broke or never answered. */
  failed: number
  /** Those of them whose connections broke. */
  broken: number
  notSent: number
  /** Milliseconds from when a request was due. */
  ackedP50: number
  ackedP99: number
  refusedP99: number
  /** Acknowledged in each second of the time. */
  ackedBySecond: number[]
  /** The IDs of acknowledged events, where they are wanted. */
  ids: string[]
  /** From the restart in the middle to the first ack after it; NaN where none came within the time. */
  secondsUntilBack: number
}

const PREPARED = 20_000
/** After the end of the time nobody waits longer for answers. */
const PATIENCE_MS = 5_000

process.once('disconnect', () => process.exit())
process.send?.({ ready: '' })
process.on('message', (rush: Rush) => void carryOut(rush).then((rushed) => process.send?.(rushed)))

async function carryOut({ port, rate, seconds, connections: most, wantsIds, withRestart }: Rush): Promise<Rushed> {
  const maker = requestMaker(2_048, { rare: false })
  const count = Math.round(rate * seconds)
  const ready = Array.from({ length: Math.min(count, PREPARED) }, maker.next)
  const next = () => ready.pop() ?? maker.next()
  const idle: ((request: Buffer, dueAt: number) => void)[] = []
  const acked: number[] = []
  const refused: number[] = []
  const ackedBySecond = Array.from({ length: Math.ceil(seconds) }, () => 0)
  const ids: string[] = []
  const open = new Set<Connection>()
  let failed = 0
  let broken = 0
  let notSent = 0
  let due = 0
  const started = performance.now()
  const outage = withRestart ? watchForOutage(started + seconds * 500) : undefined
  if (withRestart) setTimeout(() => process.send?.('middle'), seconds * 500)

  const openOne = (first: Buffer, firstDueAt: number) => {
    let dueAt = firstDueAt
    let sent = first
    const send = (request: Buffer, at: number) => {
      dueAt = at
      sent = request
      connection.send(request)
    }
    const connection = openConnection(
      port,
      ({ status, closes }) => {
        const now = performance.now()
        if (status === 200) {
          acked.push(now - dueAt)
          outage?.acked(now)
          if (wantsIds) ids.push(eventIdOf(sent))
          const second = Math.floor((now - started) / 1000)
          if (second in ackedBySecond) ackedBySecond[second] = (ackedBySecond[second] ?? 0) + 1
        } else if (status === 503) refused.push(now - dueAt)
        else failed += 1
        if (closes) connection.close()
        else idle.push(send)
      },
      (wasWaiting) => {
        if (wasWaiting) {
          failed += 1
          broken += 1
        }
        open.delete(connection)
        const at = idle.indexOf(send)
        if (at >= 0) idle.splice(at, 1)
      },
    )
    open.add(connection)
    send(first, firstDueAt)
  }

  const sendDue = () => {
    const now = performance.now()
    for (; due < count && started + (due / rate) * 1000 <= now; due += 1) {
      const dueAt = started + (due / rate) * 1000
      const send = idle.pop()
      if (send) send(next(), dueAt)
      else if (open.size < most) openOne(next(), dueAt)
      else notSent += 1
    }
  }
  await new Promise<void>((done) => {
    const timer = setInterval(() => {
      sendDue()
      const isOver = due === count && acked.length + refused.length + failed + notSent >= count
      if (!isOver && performance.now() - started < (seconds + PATIENCE_MS / 1000) * 1000) return
      clearInterval(timer)
      done()
    }, 1)
  })
  for (const connection of open) connection.close()
  for (const times of [acked, refused]) times.sort((a, b) => a - b)
  return {
    due,
    acked: acked.length,
    refused: refused.length,
    failed: count - acked.length - refused.length - notSent,
    broken,
    notSent,
    ackedP50: quantile(acked, 0.5),
    ackedP99: quantile(acked, 0.99),
    refusedP99: quantile(refused, 0.99),
    ackedBySecond,
    ids,
    secondsUntilBack: outage?.secondsUntilBack(started + seconds * 1000) ?? Number.NaN,
  }
}
