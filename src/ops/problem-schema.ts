import { z } from 'zod'
import { problemCodes } from '../problem.ts'

/** Problem details (RFC 9457), with what some codes add. */
export const problemSchema = z
  .strictObject({
    type: z.literal('about:blank'),
    title: z.string(),
    status: z.int().min(400).max(599),
    code: z.enum(problemCodes).meta({ description: 'Rely on this, never on the words' }),
    detail: z.string().optional(),
    errors: z
      .array(z.strictObject({ path: z.string(), message: z.string() }))
      .optional()
      .meta({ description: '`invalid_request`: what is wrong, by place' }),
    fields: z.array(z.string()).optional().meta({ description: '`key_conflict`: the fields in which the messages differ' }),
    send_status: z.string().optional().meta({ description: 'The status that the send has now' }),
    will_change: z.int().optional().meta({ description: '`unconfirmed`: how many sends the plan will change' }),
    version: z.int().optional().meta({ description: 'The version that it has now' }),
  })
  .meta({ id: 'Problem', example: { type: 'about:blank', title: 'not found', status: 404, code: 'not_found' } })
