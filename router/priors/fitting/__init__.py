"""How the priors are fitted: read by `router.priors.build` only, never while requests are served."""
