import { defineConfig, env } from 'oncehook'

// A rule that looks at each payment and wants no email, and the source of the delivery events.

export default defineConfig({
  sources: {
    bench: { provider: 'stripe', secrets: env.list('ONCEHOOK_BENCH_SECRETS') },
    inboxili: { provider: 'inboxili', secrets: env.list('INBOXILI_WEBHOOK_SECRETS') },
  },
  followUps: [{ name: 'none', source: 'bench', type: 'invoice.paid', email: () => undefined }],
})
