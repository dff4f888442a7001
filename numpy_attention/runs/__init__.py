"""Part IV, continued. Long runs: everything around the training loop, including the recovery after a kill.

    trainer -> checkpoint -> parallel -> mpi                  Chapters 29 to 32
    task, config, restore                                     the interface of tasks, the settings, resuming a run
    lock, log, progress, plot, signals, memory, diagnose      one small tool in each file

One step: `Trainer.one_step` -> `parallel.loss_and_gradients` -> `ranks.total` -> `training.loop.take_step`.
"""
