import type pg from 'pg'
import { z } from 'zod'
import type { Replayed } from '../events/replay.ts'
import { exportCsv } from './csv-export.ts'
import { asCsv, csvReply } from './csv-reply.ts'
import { findConflictBody } from './event-facts.ts'
import { findEvent, findEventBody, listEvents } from './event-queries.ts'
import { eventPageSchema, eventSchema, replayedSchema } from './event-schemas.ts'
import { eventFilter, eventRow, rowIdSchema } from './filters.ts'
import { type Route, refuse, reply, route } from './route.ts'

export interface EventRouteDeps {
  pool: pg.Pool
  reads: pg.Pool
  replay(id: string, actor: string, via: string, request?: string): Promise<Replayed>
  now: () => Date
}

const tag = 'Events'
const params = z.strictObject({ id: eventRow })
const missing = 'no event has this id'

/** Looking at events, and running the follow-ups of one again. */
export function eventRoutes({ pool, reads, replay, now }: EventRouteDeps): Route[] {
  return [
    route({
      id: 'listEvents',
      method: 'get',
      path: '/v1/events',
      tag,
      summary: 'List events, last received first',
      roles: ['reader', 'operator'],
      query: eventFilter(now),
      answers: { 200: { description: 'One page', schema: eventPageSchema, others: asCsv } },
      async handle({ query, prefers, actor, mask }) {
        if (prefers('text/csv'))
          return csvReply(
            'events',
            await exportCsv({ pool, reads }, { list: 'events', filter: query }, { actor, via: 'api', mask }),
          )
        return reply(200, await listEvents(reads, query))
      },
    }),
    route({
      id: 'findEvent',
      method: 'get',
      path: '/v1/events/:id',
      tag,
      summary: 'One event, with all that is known about it but its body',
      roles: ['reader', 'operator'],
      params,
      missing,
      answers: { 200: { description: 'The event', schema: eventSchema } },
      async handle({ params: { id } }) {
        const event = await findEvent(reads, id)
        return event && reply(200, event)
      },
    }),
    route({
      id: 'findEventBody',
      method: 'get',
      path: '/v1/events/:id/body',
      tag,
      summary: 'The bytes of an event as they were received, after content decoding',
      roles: ['reader', 'operator'],
      params,
      missing,
      answers: { 200: { description: 'The body, as an attachment', others: { 'application/octet-stream': 'the bytes' } } },
      problems: { 403: ['forbidden'], 410: ['body_emptied'] },
      async handle({ params: { id }, mask }) {
        if (mask.isOn) return refuse(403, 'forbidden', 'personal data is hidden from role reader')
        const found = await findEventBody(reads, id)
        if (!found) return undefined
        if (!found.body) return refuse(410, 'body_emptied', 'retention has emptied this body')
        const headers = { 'Content-Disposition': `attachment; filename="event-${id}.bin"` }
        return { status: 200, type: 'application/octet-stream', content: found.body, headers }
      },
    }),
    route({
      id: 'findConflictBody',
      method: 'get',
      path: '/v1/events/:id/conflicts/:conflict/body',
      tag,
      summary: 'The bytes of a conflict of an event',
      roles: ['reader', 'operator'],
      params: params.extend({
        conflict: rowIdSchema.meta({ description: 'Its `id` in `conflicts` of the event', example: '2' }),
      }),
      missing: 'no conflict of this event has this id',
      answers: { 200: { description: 'The body, as an attachment', others: { 'application/octet-stream': 'the bytes' } } },
      problems: { 403: ['forbidden'] },
      async handle({ params: { id, conflict }, mask }) {
        if (mask.isOn) return refuse(403, 'forbidden', 'personal data is hidden from role reader')
        const body = await findConflictBody(reads, id, conflict)
        if (!body) return undefined
        const headers = { 'Content-Disposition': `attachment; filename="event-${id}-conflict-${conflict}.bin"` }
        return { status: 200, type: 'application/octet-stream', content: body, headers }
      },
    }),
    route({
      id: 'replayEvent',
      method: 'post',
      path: '/v1/events/:id/replay',
      tag,
      summary: 'Run the rules of an event again',
      description: 'What was sent is not sent again, since the keys are held. A quarantined event is read anew. Audited.',
      roles: ['operator'],
      params,
      missing,
      answers: { 202: { description: 'What came of it', schema: replayedSchema } },
      problems: { 409: ['already_running', 'unknown_source'], 410: ['body_emptied'] },
      async handle({ params: { id }, actor, requestId }) {
        const replayed = await replay(id, actor, 'api', requestId)
        switch (replayed.outcome) {
          case 'not_found':
            return undefined
          case 'pending':
            return refuse(409, 'already_running', 'this event waits to be processed already')
          case 'unknown_source':
            return refuse(409, 'unknown_source', 'the source of this event is not configured')
          case 'emptied':
            return refuse(410, 'body_emptied', 'retention has emptied the body of this event')
          case 'queued':
          case 'still_unusable':
            return reply(202, { outcome: replayed.outcome })
          case 'read':
            return reply(202, replayed)
        }
      },
    }),
  ]
}
