import { defineConfig, env, key } from 'oncehook'

// The rule wants every event, one in a hundred or none: BENCH_RULE is the event type that it names.
export default defineConfig({
  sources: {
    stripe: { provider: 'stripe', secrets: env.list('STRIPE_WEBHOOK_SECRETS') },
    other: { provider: 'stripe', secrets: env.list('STRIPE_WEBHOOK_SECRETS') },
  },
  followUps: [
    {
      source: 'stripe',
      type: env.required('BENCH_RULE'),
      email: ({ data }) => ({
        key: key('invoice', data.object.id, 'paid'),
        to: data.object.customer_email,
        from_email: 'billing@example.com',
        subject: 'Your receipt',
        text_body: 'Thank you.',
      }),
    },
  ],
})
