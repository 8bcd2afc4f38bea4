import { createHash, randomBytes } from 'node:crypto'
import type { Log } from './log.ts'
import { VERSION } from './version.ts'

// OTLP over HTTP as JSON, as the OpenTelemetry collector takes it on port 4318.

type Attributes = Readonly<Record<string, string | number | undefined>>

/** What one process says of its work to a collector. */
export interface Tracing {
  /** Something that belongs to a request has ended, and took so long. It is the root of what follows from the request. */
  received(request: string, seconds: number, attributes: Attributes): void
  /** Times a piece of work that follows from a request; without one it is a trace of its own. What it rejects with is passed on. */
  during<Result>(span: SpanOf<Result>, work: () => Promise<Result>): Promise<Result>
  /** Sends what is left. */
  stop(): Promise<void>
}

interface SpanOf<Result> {
  name: 'process event' | 'send' | 'call email API'
  request: string | undefined
  attributes?: Attributes
  /** What the result adds. */
  ofResult?(result: Result): Attributes
}

export interface TracingSettings {
  otlpEndpoint: string
  otlpHeaders?: Readonly<Record<string, string>> | undefined
  serviceName: string
  /** The share of the requests that are traced. */
  tracedShare: number
}

const EVERY_MS = 5_000
const MOST_WAITING = 4_096
const MOST_AT_ONCE = 512
const SEND_WITHIN_MS = 5_000
const kinds = { 'process event': 5, send: 5, 'call email API': 3 } as const
const SERVER = 2
const FAILED = 2

interface Span {
  traceId: string
  spanId: string
  parentSpanId?: string
  name: string
  kind: number
  startTimeUnixNano: string
  endTimeUnixNano: string
  attributes: object[]
  status: { code?: number }
}

/** Begins to trace. A collector that is away costs spans, and nothing else. */
export function openTracing(process: 'serve' | 'worker', settings: TracingSettings, log: Log): Tracing {
  let waiting: Span[] = []
  let isFailing = false
  const add = (span: Span) => {
    if (waiting.length < MOST_WAITING) waiting.push(span)
  }
  const flush = async () => {
    while (waiting.length > 0) {
      const spans = waiting.slice(0, MOST_AT_ONCE)
      waiting = waiting.slice(MOST_AT_ONCE)
      try {
        await post(settings, process, spans)
        isFailing = false
      } catch (error) {
        // Once for each time that the collector is away. What was in this request is lost, what comes later is tried later.
        if (!isFailing) log.warn({ error }, 'spans not sent')
        isFailing = true
        return
      }
    }
  }
  let isStopped = false
  let running = Promise.resolve()
  const next = () =>
    setTimeout(() => {
      running = flush().then(() => {
        if (!isStopped) timer = next()
      })
    }, EVERY_MS).unref()
  let timer = next()

  return {
    received(request, seconds, attributes) {
      const trace = traceOf(request)
      if (!isSampled(trace, settings.tracedShare)) return
      add({
        ...times(seconds),
        traceId: trace,
        spanId: rootOf(request),
        name: 'receive',
        kind: SERVER,
        attributes: listOf(attributes),
        status: {},
      })
    },
    async during({ name, request, attributes = {}, ofResult = () => ({}) }, work) {
      const trace = request === undefined ? randomBytes(16).toString('hex') : traceOf(request)
      if (!isSampled(trace, settings.tracedShare)) return work()
      const started = performance.now()
      const end = (more: Attributes, status: Span['status']) =>
        add({
          ...times((performance.now() - started) / 1_000),
          traceId: trace,
          spanId: randomBytes(8).toString('hex'),
          ...(request !== undefined && { parentSpanId: rootOf(request) }),
          name,
          kind: kinds[name],
          attributes: listOf({ ...attributes, ...more }),
          status,
        })
      try {
        const result = await work()
        end(ofResult(result), {})
        return result
      } catch (error) {
        // Its text may hold what must not leave: the log has it, masked, under the same request.
        end({ 'error.type': error instanceof Error ? error.name : 'unknown' }, { code: FAILED })
        throw error
      }
    },
    async stop() {
      isStopped = true
      clearTimeout(timer)
      await running
      await flush()
    },
  }
}

// A request is known everywhere by its ID alone: so the trace, and its root, are made of that, and no job has to carry them.
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex')
const traceOf = (request: string) => hashOf(`trace ${request}`).slice(0, 32)
const rootOf = (request: string) => hashOf(`root ${request}`).slice(0, 16)

/** The same for all spans of a trace, in whichever process. */
const isSampled = (trace: string, share: number) => Number.parseInt(trace.slice(0, 8), 16) < share * 2 ** 32

function times(seconds: number): { startTimeUnixNano: string; endTimeUnixNano: string } {
  const end = BigInt(Math.round((performance.timeOrigin + performance.now()) * 1_000)) * 1_000n
  return { startTimeUnixNano: String(end - BigInt(Math.round(seconds * 1e9))), endTimeUnixNano: String(end) }
}

function listOf(attributes: Attributes): object[] {
  return Object.entries(attributes)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ({
      key,
      value:
        typeof value === 'string'
          ? { stringValue: value }
          : Number.isInteger(value)
            ? { intValue: String(value) }
            : { doubleValue: value },
    }))
}

async function post(
  { otlpEndpoint, otlpHeaders, serviceName }: TracingSettings,
  process: string,
  spans: readonly Span[],
): Promise<void> {
  const body = {
    resourceSpans: [
      {
        resource: {
          attributes: listOf({ 'service.name': serviceName, 'service.version': VERSION, 'oncehook.process': process }),
        },
        scopeSpans: [{ scope: { name: 'oncehook', version: VERSION }, spans }],
      },
    ],
  }
  const answer = await fetch(`${otlpEndpoint.replace(/\/+$/, '')}/v1/traces`, {
    method: 'POST',
    headers: { ...otlpHeaders, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    redirect: 'error',
    signal: AbortSignal.timeout(SEND_WITHIN_MS),
  })
  await answer.body?.cancel()
  if (!answer.ok) throw new Error(`the collector answered ${answer.status}`)
}
