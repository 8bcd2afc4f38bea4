import type pg from 'pg'
import { z } from 'zod'
import type { Change, Changes } from './changes.ts'
import type { Overview } from './overview.ts'
import type { Mask } from './personal-data.ts'
import { type Route, refuse, reply, route } from './route.ts'
import { findSeries, type Range, ranges } from './series.ts'
import { statsSchema } from './stats-schemas.ts'

export interface StatsRouteDeps {
  reads: pg.Pool
  findOverview(): Promise<Overview>
  changes: Changes
}

const tag = 'Overview'
const CHECK_EVERY_MS = 15_000
const rangeNames = Object.keys(ranges) as Range[] // its own keys

/** The service as a whole, and what changes in it. */
export function statsRoutes({ reads, findOverview, changes }: StatsRouteDeps): Route[] {
  return [
    route({
      id: 'readStats',
      method: 'get',
      path: '/v1/stats',
      tag,
      summary: 'How it goes: the six cells of the overview, counts, and 60 points of a range',
      roles: ['reader', 'operator'],
      query: z.strictObject({ range: z.enum(rangeNames).default('1h') }),
      answers: { 200: { description: 'The figures', schema: statsSchema } },
      async handle({ query }) {
        const [overview, series] = await Promise.all([findOverview(), findSeries(reads, query.range)])
        return reply(200, { overview, series })
      },
    }),
    route({
      id: 'streamChanges',
      method: 'get',
      path: '/v1/stream',
      tag,
      summary: 'What changes, as server-sent events',
      description:
        '`stats` has the overview as in `GET /v1/stats`; `send` a key with its status and version; `event` an ID with its status; `reload` says that too much has changed at once. They are hints for those who show rows: read the row for the rest. At most 4 batches a second; a comment every 15 s shows that the connection lives. The stream ends when the process stops: connect again.',
      roles: ['reader', 'operator'],
      answers: { 200: { description: 'The stream', others: { 'text/event-stream': 'changes' } } },
      problems: { 503: ['too_many_streams'] },
      async handle({ signal, actor, mask, isStillAllowed }) {
        const batches = changes.listen(signal, actor)
        if (!batches)
          return { ...refuse(503, 'too_many_streams', 'as many listen here as may'), headers: { 'Retry-After': '30' } }
        const content = eventStream(batches, mask, isStillAllowed)
        // A proxy that gathers would keep it back.
        return { status: 200, type: 'text/event-stream; charset=utf-8', content, headers: { 'X-Accel-Buffering': 'no' } }
      },
    }),
  ]
}

/** Changes as server-sent events; an empty batch is a comment. Ends with the token that it was asked for by. */
async function* eventStream(
  batches: AsyncIterable<readonly Change[]>,
  mask: Mask,
  isStillAllowed: () => Promise<boolean>,
): AsyncGenerator<string> {
  yield 'retry: 3000\n\n'
  let checkDueAt = performance.now() + CHECK_EVERY_MS
  for await (const batch of batches) {
    if (batch.length === 0 || performance.now() >= checkDueAt) {
      checkDueAt = performance.now() + CHECK_EVERY_MS
      // While the database is away nobody is shut out.
      if (!(await isStillAllowed().catch(() => true))) return
    }
    yield batch.length === 0 ? ':\n\n' : batch.map((change) => messageOf(change, mask)).join('')
  }
}

function messageOf({ kind, ...rest }: Change, mask: Mask): string {
  const data = 'overview' in rest ? mask.apply(rest.overview) : rest
  return `event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`
}
